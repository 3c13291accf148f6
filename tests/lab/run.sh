#!/bin/sh
# run.sh [MARKS [NAMES]]: run the tests that MARKS selects (pytest's -m; default: lab), all or those
# whose names NAMES selects (its -k), in a guest that has NVMe controllers and the kernel's real
# drivers: QEMU's own controller, behind the NVMe/TCP driver a virtual drive that knows its true
# energy, and QEMU's drives with two controllers and with two namespaces. Pages, records and the
# truth table come to $WATTLOAD_LAB/out.
# The guest runs this machine's root read-only, so .venv and checkout are as they are here.
# WATTLOAD_LAB names the folder for kernel and initramfs; no root rights and no KVM are needed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=${WATTLOAD_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/wattload-lab}
limit_s=${WATTLOAD_LAB_LIMIT_S:-3600}
marks=${1:-lab}
names=${2:-}

missing=
for tool in qemu-system-x86_64 busybox cpio modprobe depmod nvme mkfs.ext4; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
  echo "make lab needs:$missing" >&2
  echo "apt-get install --no-install-recommends qemu-system-x86 busybox-static cpio kmod nvme-cli e2fsprogs" >&2
  exit 2
fi
PATH="$PATH:/usr/sbin:/sbin"
mkdir -p "$lab"
cd "$lab"
exec 9> lock
if ! flock --nonblock 9; then
  echo "make lab: $lab is in use by another one; wait for it, or name another WATTLOAD_LAB" >&2
  exit 2
fi

if [ ! -e kernel/vmlinuz ]; then
  echo "fetching a Debian kernel: 70 MB to download, 405 MB in $lab"
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
  apt-get download -q "$package"
  rm -rf kernel unpacked
  dpkg -x "${package}"_*.deb unpacked
  rm "${package}"_*.deb
  depmod -b unpacked "${package#linux-image-}"
  ln -s "boot/vmlinuz-${package#linux-image-}" unpacked/vmlinuz
  mv unpacked kernel
fi
version=$(basename "$(readlink kernel/vmlinuz)")
version=${version#vmlinuz-}

rm -rf initramfs
mkdir -p initramfs/bin initramfs/modules
for each in proc sys dev host layer new; do mkdir "initramfs/$each"; done
cp "$(command -v busybox)" initramfs/bin/busybox
for applet in sh mount insmod mkdir switch_root sed sleep; do
  ln -s busybox "initramfs/bin/$applet"
done
for module in virtio_pci 9pnet_virtio 9p overlay crc32c_generic ext4 nvme nvme-tcp \
  ipmi_si ipmi_devintf; do
  modprobe -d "$lab/kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' > modules.list
while read -r module; do
  cp "$module" initramfs/modules/
  basename "$module" >> initramfs/modules/order
done < modules.list
cp "$here/init.sh" initramfs/init
chmod +x initramfs/init
(cd initramfs && find . | cpio -o -H newc --quiet | gzip -1) > initramfs.gz
# Modules are compiled here: in the guest that would take longer than all that a command does.
"$root/.venv/bin/python" -m compileall -q "$root/wattload" "$root/workloads" "$root/loaders" \
  "$root/power" "$root/reports" "$root/configs" "$root/tests"
mkdir -p out
[ -e disk.img ] || truncate -s 256M disk.img
for each in pair two1 two2; do [ -e "$each.img" ] || truncate -s 64M "$each.img"; done

# The guest's management controller. QEMU 7.2 ends by SIGSEGV unless it connects late (reconnect).
rm -f bmc.sock
"$root/.venv/bin/python" "$here/bmc.py" bmc.sock &
bmc=$!
trap 'kill "$bmc" 2>/dev/null || :' EXIT

# TCG even where /dev/kvm is there: it may be one that runs no ordinary guest. Each instruction takes
# 4 ns of the guest's time, so that its drives and meters keep time on a busy host, which only takes
# longer. The check of copies to users is off: it takes huge pages that the NVMe/TCP driver sends to
# its own host for a breach.
timeout "$limit_s" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -icount shift=2 -cpu max \
  -smp 1 -m 6144 -nographic -no-reboot -nic none \
  -kernel kernel/vmlinuz -initrd initramfs.gz \
  -append "console=ttyS0 quiet panic=-1 mitigations=off hardened_usercopy=off lab_job=$here/guest.sh lab_kernel=$lab/kernel lab_tests=$(echo "$marks" | tr ' ' ,) lab_name=$(echo "$names" | tr ' ' ,)" \
  -virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap \
  -virtfs local,path=out,mount_tag=out,security_model=none,multidevs=remap \
  -drive file=disk.img,if=none,id=disk,format=raw,cache=unsafe,aio=threads \
  -device nvme,serial=QEMU0001,drive=disk \
  -drive file=pair.img,if=none,id=pair,format=raw,cache=unsafe \
  -device nvme-subsys,id=subsystem -device nvme,serial=PAIR0001,id=pair0,subsys=subsystem \
  -device nvme,serial=PAIR0001,subsys=subsystem -device nvme-ns,drive=pair,bus=pair0,shared=on \
  -drive file=two1.img,if=none,id=two1,format=raw,cache=unsafe \
  -drive file=two2.img,if=none,id=two2,format=raw,cache=unsafe \
  -device nvme,serial=TWO0001,id=two -device nvme-ns,drive=two1,bus=two,nsid=1 \
  -device nvme-ns,drive=two2,bus=two,nsid=2 \
  -chardev socket,id=bmc,path=bmc.sock,reconnect=1 -device ipmi-bmc-extern,chardev=bmc,id=bmc0 \
  -device isa-ipmi-kcs,bmc=bmc0 </dev/null 2>&1 | sed -u 's|\r||g' | tee console.log
status=$(sed -n 's/.*lab-exit-status \([0-9]*\).*/\1/p' console.log | tail -1)
exit "${status:-99}"
