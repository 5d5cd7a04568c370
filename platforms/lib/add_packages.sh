#!/bin/bash
# add_packages.sh ROOT "FOREIGN ARCHITECTURES" PACKAGE...: installs packages in a private root. Runs as
# root in a namespace of its own, so that its mounts end with it.
set -euo pipefail
root=$1 foreigns=$2
shift 2

mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
apt=(chroot "$root" apt-get -q -y -o Acquire::Retries=3 -o Acquire::Languages=none
  -o APT::Sandbox::User=root)

chroot "$root" dpkg --configure -a # in case an earlier run was cut short
for foreign in $foreigns; do chroot "$root" dpkg --add-architecture "$foreign"; done
"${apt[@]}" update || true # what it has may do; installing decides
"${apt[@]}" install --no-install-recommends "$@"
"${apt[@]}" clean
