#!/busybox sh
# The first program of the virtual machine: modules, the host's files, network, then the command.
# The host's root, read-only, becomes the command's root, with fresh /proc, /sys, /dev, /tmp and /run;
# /run/kit and /run/work are folders of the host. The command's output goes to /run/work/output, its
# status to /run/work/status; a machine that leaves no status has died.
B=/busybox
end() { $B sync; echo "ended: $1"; echo | $B dd of=/dev/port bs=1 seek=244 conv=notrunc 2>/dev/null; $B poweroff -f; }
share() { $B mkdir -p "$2"; $B mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || end "cannot mount $1"; }
$B mkdir -p /proc /sys /dev /h
$B mount -t proc p /proc
$B mount -t sysfs s /sys
$B mount -t devtmpfs d /dev
for module in $($B cat /modules); do
    $B insmod "/ko/$module.ko" || end "cannot load $module"
done
share root /h ro,cache=loose
$B mount -t proc p /h/proc
$B mount -t sysfs s /h/sys
$B mount -t devtmpfs d /h/dev
for folder in /tmp /run /var/tmp; do $B mount -t tmpfs t "/h$folder"; done
$B mkdir -p /h/dev/shm /h/dev/pts
$B mount -t tmpfs t /h/dev/shm
$B mount -t devpts t /h/dev/pts
share kit /h/run/kit ro,cache=loose
share work /h/run/work rw,cache=none
$B date -s "@$($B cat /h/run/work/epoch)" >/dev/null
$B cat /h/run/work/seed >/dev/urandom
$B chroot /h /bin/sh /run/work/command </dev/null >/h/run/work/output 2>&1
echo $? >/h/run/work/status
end "with its status"
