#!/bin/sh
# Debian's packages for arm64, unpacked below FOLDER/sysroot, for a cross build: sysroot.sh FOLDER PACKAGE...
#
# Installed as a foreign architecture some would push the machine's own ones out (libjemalloc-dev). Here apt has lists
# and a cache of its own, so that nothing of the machine changes, and root is not needed.
set -eu
folder=$1
shift
sysroot=$folder/sysroot stamp=$folder/sysroot/packages.txt
[ "$(cat "$stamp" 2>/dev/null)" != "$*" ] || exit 0

mkdir -p "$folder/apt/lists/partial" "$folder/apt/debs"
apt=$(cd "$folder/apt" && pwd)
: >"$apt/status"
apt_get() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= -o Debug::NoLocking=1 \
        -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" "$@"
}
apt_get update
(cd "$apt/debs" && rm -f ./*.deb && apt_get download "$@")

# One folder for /lib and /usr/lib, as Debian has it; links stay within the sysroot.
rm -rf "$sysroot"
mkdir -p "$sysroot/usr/lib"
ln -s usr/lib "$sysroot/lib"
for deb in "$apt"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$sysroot"
done
find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$sysroot$(readlink "$link")" "$link"
done
rm -rf "$apt"
echo "$*" >"$stamp"
