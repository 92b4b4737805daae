# Runs a command with which programs for aarch64 are run by an emulator, and so are all that it starts:
# `unshare --user --map-root-user --mount sh aarch64.sh qemu-aarch64 COMMAND..`. Each user namespace has a list of
# interpreters of its own (Linux 6.7), so nothing of this system changes.
set -e
qemu=$(command -v "$1") || { echo "error: no $1" >&2; exit 1; }
shift
list=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none "$list"
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf %s ":aarch64:M::$magic:$mask:$qemu:FP" >"$list/register"
exec "$@"
