# Containers as a Job's pods: no root, nothing to write to, no capabilities; network aliases play the headless Service.
need docker docker.io
timeout 20 docker info >/dev/null 2>&1 || skip 'docker has no daemon here'
[ "$(id -u)" = 0 ] || skip 'not root: the key is to belong to root, as a Secret does'
name=gossamer-starters-$$
mkdir -p "$FOLDER/root/usr/bin"
cp "$ROLES" "$WORDCOUNT" "$FOLDER/root/usr/bin/"
for library in $(ldd "$ROLES" "$WORDCOUNT" | grep -o '/lib[^ ]*[^: ]' | sort -u); do
    [ -f "$library" ] && mkdir -p "$FOLDER/root$(dirname "$library")" && cp -L "$library" "$FOLDER/root$library"
done
end() {
    docker rm -f $name-0 $name-1 $name-2 >/dev/null 2>&1
    docker network rm $name >/dev/null 2>&1
    docker image rm -f $name-built $name-stage $name-rust $name >/dev/null 2>&1
    true
}
trap end EXIT
tar -C "$FOLDER/root" -c . | docker import - $name >/dev/null 2>"$FOLDER/import" || skip "docker import: $(tail -1 "$FOLDER/import")"
docker network create $name >/dev/null 2>"$FOLDER/network" || skip "docker network create: $(tail -1 "$FOLDER/network")"
"$LAUNCH" keygen "$FOLDER/key" >/dev/null && chown 0:4711 "$FOLDER/key" && chmod 440 "$FOLDER/key" || exit
check 'containers: counts words' words
chmod 755 "$FOLDER" && chmod 644 "$FOLDER/text"
pod() { # INDEX PROGRAM...
    docker run --rm --name $name-"$1" --network $name --network-alias work-"$1" --read-only --user 4711:4711 --cap-drop ALL \
        -v "$FOLDER/key:/key/key:ro" -v "$FOLDER/text:/text:ro" -e KUBERNETES_SERVICE_HOST=played -e RUST_BACKTRACE=0 \
        -e GOSSAMER_MEET=work-0:7117 -e GOSSAMER_COUNT="${COUNT:-2}" -e GOSSAMER_SURVIVES="${SURVIVES:-0}" \
        -e JOB_COMPLETION_INDEX="$1" -e GOSSAMER_KEY_FILE=/key/key $name "${@:2}"
}
# Both; pod 1 comes first, when the name of pod 0 stands for nothing yet.
job() {
    (pod 1 "$@" >"$FOLDER/one.out" 2>&1; echo $? >"$FOLDER/one.status") &
    one=$!
    pod 0 "$@" >"$FOLDER/last.out" 2>"$FOLDER/last.err"
    echo $? >"$FOLDER/last.status"
    wait $one
}
job /usr/bin/test-roles starter
check 'containers: meet by a name, over tcp' said '2 machines, started by kubernetes: here tcp'
check 'containers: the other leaves with 0' [ "$(cat "$FOLDER/one.status")" = 0 ]
job /usr/bin/test-wordcount /text
check 'containers: the words of --local 2' same_words
begin_job() {
    rm -f "$FOLDER"/last.*
    job /usr/bin/test-roles wait &
    PID=$!
    for _ in $(seq 1500); do
        grep -qs '^works' "$FOLDER/last.out" && return 0
        sleep 0.1
    done
}
for index in 0 1; do
    begin_job && docker kill --signal TERM $name-$index >/dev/null
    wait $PID
    check "containers: SIGTERM to PID 1 of pod $index ends all" said 'the program was ended by signal 15 (SIGTERM)'
    check "containers: the status is that of SIGTERM" status 143
done
begin_job && docker kill --signal KILL $name-1 >/dev/null
wait $PID
check 'containers: kill -9 is told' said 'machine 1 (pid 1 on '
check 'containers: kill -9, status 70' status 70
begin_job && docker network disconnect $name $name-1 && start=$(milliseconds)
wait $PID
check 'containers: a cut is told' said 'machine 1 (pid 1 on '
echo "containers: cut to all gone: $(($(milliseconds) - start)) ms"

# Three pods of a program that outlives one: as with `backoffLimitPerIndex: 0`, nobody starts another in its place.
rm -f "$FOLDER"/last.*
COUNT=3 SURVIVES=1
for index in 1 2; do
    (pod $index /usr/bin/test-roles goes-on >"$FOLDER/pod-$index.out" 2>&1; echo $? >"$FOLDER/pod-$index.status") &
    others+=($!)
done
(pod 0 /usr/bin/test-roles goes-on >"$FOLDER/last.out" 2>"$FOLDER/last.err"; echo $? >"$FOLDER/last.status") &
PID=$!
for _ in $(seq 1500); do
    grep -qs '^works' "$FOLDER/last.out" && break
    sleep 0.1
done
docker kill --signal KILL $name-1 >/dev/null
wait "$PID" "${others[@]}"
check 'containers: a program goes on without a pod' said 'the others go on without machine 1'
check 'containers: and comes to its end' said 'all others have counted on'
check 'containers: pod 0 leaves with 0' status 0
check 'containers: as does the other' [ "$(cat "$FOLDER/pod-2.status")" = 0 ]
COUNT=2 SURVIVES=0

# docs/Dockerfile is built. No registry is asked: its two images are made here, and in the compiler's `cargo` copies what is built already.
mkdir -p "$FOLDER/rust/bin" "$FOLDER/rust/tmp" "$FOLDER/rust/built"
cp /bin/sh /bin/cp /bin/mkdir "$FOLDER/rust/bin/" && cp "$WORDCOUNT" "$FOLDER/rust/built/wordcount"
for library in $(ldd /bin/sh /bin/cp /bin/mkdir | grep -o '/lib[^ ]*[^: ]' | sort -u); do
    [ -f "$library" ] && mkdir -p "$FOLDER/rust$(dirname "$library")" && cp -L "$library" "$FOLDER/rust$library"
done
printf '#!/bin/sh\n' >"$FOLDER/rust/bin/apt-get"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$*" = "build --release --bin wordcount" ] && mkdir -p target/release && cp /built/wordcount target/release/\n' >"$FOLDER/rust/bin/cargo"
chmod 755 "$FOLDER/rust/bin/apt-get" "$FOLDER/rust/bin/cargo"
tar -C "$FOLDER/rust" -c . | docker import -c 'ENV PATH=/bin' - $name-rust >/dev/null 2>"$FOLDER/import" || exit
build() {
    DOCKER_BUILDKIT=0 docker build --network none -f docs/Dockerfile --build-arg RUST=$name-rust --build-arg BASE=$name \
        --build-arg PROGRAM=wordcount "$@" . >"$FOLDER/last.out" 2>"$FOLDER/last.err"
    echo $? >"$FOLDER/last.status"
}
build --target build -t $name-stage # of its own name, so that it goes with the others
build -t $name-built
check 'Dockerfile: builds' status 0
check 'Dockerfile: is of no particular user' [ "$(docker image inspect -f '{{.Config.User}}' $name-built)" = 4711:4711 ]
docker run --rm --read-only --cap-drop ALL --network none -e GOSSAMER_START=alone -v "$FOLDER/text:/one:ro" $name-built /one \
    >"$FOLDER/last.out" 2>"$FOLDER/last.err"
echo $? >"$FOLDER/last.status"
check 'Dockerfile: counts words, alone, read-only' same_words
for index in 1 0; do
    docker run --rm --name $name-$index --network $name --network-alias work-$index --read-only --cap-drop ALL \
        -v "$FOLDER/key:/key/key:ro" -v "$FOLDER/text:/one:ro" -e KUBERNETES_SERVICE_HOST=played -e GOSSAMER_MEET=work-0:7117 \
        -e GOSSAMER_COUNT=2 -e JOB_COMPLETION_INDEX=$index -e GOSSAMER_KEY_FILE=/key/key $name-built /one \
        >"$FOLDER/pod-$index.out" 2>"$FOLDER/pod-$index.err" &
    pods+=($!)
done
wait "${pods[@]}"
cp "$FOLDER/pod-0.out" "$FOLDER/last.out" && cp "$FOLDER/pod-0.err" "$FOLDER/last.err"
check 'Dockerfile: two pods of it, the words of --local 2' same_words
