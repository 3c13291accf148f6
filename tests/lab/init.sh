#!/bin/sh
# PID 1 of the guest: load modules, lay a writable layer over the host's own root, run the job.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done < /modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose hostroot /host
mount -t tmpfs tmpfs /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new || exec sh
mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp
for each in proc sys dev; do mount --move "/$each" "/new/$each"; done
mount -t tmpfs tmpfs /new/run
job=$(sed 's/.*lab_job=\([^ ]*\).*/\1/' /new/proc/cmdline)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec switch_root /new /bin/sh -c '
  mkdir -p /dev/shm /dev/pts
  mount -t tmpfs shm /dev/shm
  mount -t devpts devpts /dev/pts
  "$0"; echo "lab-exit-status $?"
  sync; echo o > /proc/sysrq-trigger; while :; do :; done' "$job"
