#!/bin/bash
# host.sh FOLDER NAME CHECKOUT: the first process of a host that hosts.py makes. Its network, PID, mount,
# UTS and IPC namespaces are its own already; when it ends, so do its processes and mounts.
set -euo pipefail
folder=$1 name=$2 checkout=$3

read -r pid _ </proc/self/stat  # as seen from outside: /proc is still the machine's
mount -t proc proc /proc
hostname "$name"

mount -t tmpfs tmpfs /mnt
mkdir /mnt/drive /mnt/shared /mnt/checkout
mount -o loop "$folder/$name.image" /mnt/drive
mount --bind "$folder" /mnt/shared
mount --bind "$checkout" /mnt/checkout
for own in /run /tmp /dev/shm /etc/ssh ~/.ssh; do
    [[ ! -d $own ]] || mount -t tmpfs -o mode=1777 tmpfs "$own"
done
if [[ ! -d $checkout ]]; then # it was below /tmp
    mkdir -p "$checkout"
    mount --bind /mnt/checkout "$checkout"
fi

cp /mnt/shared/hosts /run/hosts # to be edited by itself
mount --bind /run/hosts /etc/hosts

# One key is that of the hosts and that of their user.
chmod 755 /etc/ssh
install -m 600 /mnt/shared/key /etc/ssh/key
cp /mnt/shared/key.pub /etc/ssh/authorized_keys
echo "node* $(cat /mnt/shared/key.pub)" >/etc/ssh/ssh_known_hosts
echo 'IdentityFile /etc/ssh/key' >/etc/ssh/ssh_config
cat >/etc/ssh/sshd_config <<END
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
END
mkdir -m 755 /run/sshd
/usr/sbin/sshd
echo "$pid" >"/mnt/shared/$name.pid.new"
mv "/mnt/shared/$name.pid.new" "/mnt/shared/$name.pid"
sleep infinity &
wait "$!" # and reap whatever process loses its parent
