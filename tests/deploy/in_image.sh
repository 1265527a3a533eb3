#!/bin/sh
# in_image.sh ROOTFS MODELS PROGRAM ARGUMENTS...: becomes the weft of a built image, as its user would have it: on
# a root that is read-only, with MODELS at /models, a /tmp, and nothing else of this machine but /proc and the network;
# as a user without capabilities, and, if this is run by root, of another number. PROGRAM is passed over: it lies in
# the image.
set -eu
export ROOT="$1" MODELS="$2"
shift 3
inside='
  mount --bind "$ROOT" "$ROOT"
  mount --bind "$MODELS" "$ROOT/models"
  mount -o remount,bind,ro "$ROOT/models"
  mount --rbind /proc "$ROOT/proc"
  mount -t tmpfs -o size=64m,mode=1777 tmpfs "$ROOT/tmp"
  mount -o remount,bind,ro "$ROOT"
  root="$ROOT"
  unset ROOT MODELS
  exec unshare --user --map-user=65532 --map-group=65532 --root="$root" --wd=/ /usr/bin/weft "$@"'
if [ "$(id -u)" = 0 ]; then
  exec setpriv --reuid=65532 --regid=65532 --clear-groups \
    unshare --user --map-root-user --mount sh -c "$inside" sh "$@"
fi
exec unshare --user --map-root-user --mount sh -c "$inside" sh "$@"
