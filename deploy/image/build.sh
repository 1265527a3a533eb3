#!/bin/sh
# An image without a system in it: the four programs, the libraries that they load, and next to nothing else; no shell.
#
#   deploy/image/build.sh BIN OUT [--no-oci]
#
# BIN is the folder with the programs (build/bin), OUT one that is made anew.
#
# OUT/rootfs is the image's root, for any tool that runs one: bwrap, systemd-nspawn, unshare --root. Where buildah is
# installed, OUT/weft.oci.tar is the same as an OCI image, for podman load and the like; no registry is asked for anything.
# The libraries are this machine's. Containerfile makes the same on a Debian of its own.
set -eu

if [ $# -lt 2 ] || [ "${3-}" != "${3+--no-oci}" ]; then
  echo "usage: $0 BIN OUT [--no-oci]" >&2
  exit 2
fi
bin=$1 out=$2 root=$2/rootfs
user=65532 # of nobody in particular, and not root

programs="weft weft-router weft-scheduler weft-worker"
rm -rf "$out"
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/etc/ssl/certs" "$root/models" "$root/proc" "$root/sys" \
  "$root/dev" "$root/tmp"
chmod 1777 "$root/tmp"
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

for program in $programs; do
  install -m 755 "$bin/$program" "$root/usr/bin/$program"
done

# All that the loader finds, in the one folder where it looks unasked; and the loader itself, by its own path.
found=$(for program in $programs; do ldd "$bin/$program"; done)
if printf '%s' "$found" | grep "not found" >&2; then
  exit 1
fi
libraries=$(printf '%s' "$found" |
  sed -n 's/^.*=> \(\/[^ ]*\) (.*$/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*$/\1/p' | sort -u)
folder=$(printf '%s\n' "$libraries" | sed -n 's/^\(.*\)\/libc\.so\.6$/\1/p; s/^\/usr//')
for library in $libraries; do
  case $library in
  /lib64/*) to=$root/usr$library ;;
  *) to=$root/usr${folder#/usr}/${library##*/} ;;
  esac
  mkdir -p "${to%/*}"
  install -m 755 "$(readlink -f "$library")" "$to"
done

# Their licences ask that these words go along. (A path may be known to dpkg with /usr or without.)
# shellcheck disable=SC2046,SC2086 # one word a library
for package in $(dpkg-query -S $libraries $(readlink -f $libraries) 2>/dev/null | sed 's/:.*//' | sort -u); do
  if [ -r "/usr/share/doc/$package/copyright" ]; then
    mkdir -p "$root/usr/share/doc/$package"
    install -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
  fi
done

echo "weft:x:$user:$user:weft:/tmp:/nonexistent" >"$root/etc/passwd"
echo "weft:x:$user:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
  install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi

echo "$root: $(du -sk --apparent-size "$root" | cut -f1) KiB"

if [ $# = 3 ]; then
  exit 0
fi
if ! command -v buildah >/dev/null; then
  echo "no buildah here: no OCI image"
  exit 0
fi
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah add --chown 0:0 "$container" "$root" /
buildah config --user "$user:$user" --env WEFT_HOST=0.0.0.0 --port 8080 --stop-signal SIGTERM \
  --entrypoint '["/usr/bin/weft"]' --cmd help --label org.opencontainers.image.licenses=Apache-2.0 "$container"
buildah commit --quiet "$container" "oci-archive:$out/weft.oci.tar:weft"
echo "$out/weft.oci.tar: $(du -sk --apparent-size "$out/weft.oci.tar" | cut -f1) KiB"
