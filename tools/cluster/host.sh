#!/bin/bash
# host.sh FOLDER NAME CHECKOUT: the first process of a host that hosts.py makes. Its network, PID, mount,
# UTS, IPC and time namespaces are its own already; when it ends, so do its processes and mounts.
set -euo pipefail
folder=$1 name=$2 checkout=$3

read -r pid _ </proc/self/stat  # as seen from outside: /proc is still the machine's
mount -t proc proc /proc
hostname "$name"

mount -t tmpfs tmpfs /mnt
mkdir /mnt/folder /mnt/checkout
# A drive in memory is a device of its own: over a file on a disk, the disk that all hosts share counts.
image=/mnt/$(basename "$folder").image
truncate --size 2G "$image"
# Whatever the kernel would write later counts as the drive's writes.
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$image"
mount -o loop "$image" /srv
mount --bind "$folder" /mnt/folder
mount --bind "$checkout" /mnt/checkout
for own in /run /tmp /dev/shm /etc/ssh ~/.ssh; do
    [[ ! -d $own ]] || mount -t tmpfs -o mode=1777 tmpfs "$own"
done
for kept in folder checkout; do
    if [[ ! -d ${!kept} ]]; then # it is below /tmp
        mkdir -p "${!kept}"
        mount --bind "/mnt/$kept" "${!kept}"
    fi
done

cp "$folder/hosts" /run/hosts # each may be edited by itself
mount --bind /run/hosts /etc/hosts

# One key is that of the hosts and that of their user.
chmod 755 /etc/ssh
install -m 600 "$folder/key" /etc/ssh/key
cp "$folder/key.pub" /etc/ssh/authorized_keys
echo "node* $(cat "$folder/key.pub")" >/etc/ssh/ssh_known_hosts
printf 'IdentityFile /etc/ssh/key\nServerAliveInterval 5\n' >/etc/ssh/ssh_config
cat >/etc/ssh/sshd_config <<END
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
ClientAliveInterval 2
END
mkdir -m 755 /run/sshd
/usr/sbin/sshd
echo "$pid" >"$folder/$name.pid.new"
mv "$folder/$name.pid.new" "$folder/$name.pid"
sleep infinity &
wait "$!" # and reap whatever process loses its parent
