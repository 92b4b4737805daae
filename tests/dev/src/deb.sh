# Installs a Debian package on a copy of this system, looks at what is there, removes it, and looks at what is left.
# $1: the package. $2: a folder for the copy, which lies in memory and ends with the mount namespace of this script.
set -eu
package=$1 place=$2
fail() { echo "FAILED: $*"; exit 1; }
mkdir -p "$place"
mount -t tmpfs tmpfs "$place"
mkdir "$place/changes" "$place/work" "$place/root"
if ! mount -t overlay overlay -o "lowerdir=/,upperdir=$place/changes,workdir=$place/work" "$place/root"; then
    echo "SKIPPED: no overlay of the root file system can be mounted here"
    exit 0
fi
for shared in proc dev; do mount --rbind "/$shared" "$place/root/$shared"; done
# Nothing of the host's systemd, where it runs.
mount -t tmpfs tmpfs "$place/root/run"
mount -t tmpfs tmpfs "$place/root/tmp"
cp "$package" "$place/root/tmp/package.deb"
inside() { chroot "$place/root" "$@"; }
export DEBIAN_FRONTEND=noninteractive

inside dpkg --install /tmp/package.deb
inside dpkg --listfiles gossamer-daemon | grep -v '/\.$' >"$place/installed"
for file in usr/bin/gossamer-daemon usr/bin/gossamer-launch usr/share/doc/gossamer-daemon/copyright \
    usr/share/doc/gossamer-daemon/examples/rack.yaml; do
    [ -e "$place/root/$file" ] || fail "/$file is missing"
done
grep -q '/lib/systemd/system/gossamer-daemon\.service$' "$place/installed" || fail "the unit is missing"
[ ! -e "$place/root/etc/systemd/system/multi-user.target.wants/gossamer-daemon.service" ] ||
    fail "the daemon starts at boot, and has neither rack.yaml nor a key"
inside id gossamer >/dev/null || fail "the user that programs run as is missing"
for program in gossamer-daemon gossamer-launch; do inside "$program" --version; done
[ "$(inside gossamer-launch run --local 2 echo here | grep -c here)" = 2 ] || fail "two machines do not answer"
if command -v systemd-analyze >/dev/null; then
    inside systemd-analyze verify "$(grep '/gossamer-daemon\.service$' "$place/installed")" || fail "systemd objects to the unit"
else
    echo "SKIPPED: the unit is not verified: no systemd-analyze"
fi

inside dpkg --remove gossamer-daemon
while read -r file; do
    [ -d "$place/root$file" ] || [ ! -e "$place/root$file" ] || fail "$file is left"
done <"$place/installed"
inside dpkg --purge gossamer-daemon
left=$(find "$place/changes" -name '*gossamer*')
[ -z "$left" ] || fail "left after purging: $left"
echo "installed, used, removed"
