#!/bin/sh
# make_text.sh - the training text: prose from Debian's documentation packages.
# usage: make_text.sh SCRATCH_DIR     (Debian 12 with deb sources; no root needed)
# Leaves SCRATCH_DIR/train.txt, heldout.txt and packages.txt (package, version).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/debs" "$1/unpacked"
cd "$1"

# The first column of licences.txt is the list.
packages=$(awk '!/^#/ && NF { print $1 }' "$here/licences.txt")
(cd debs && apt-get -q download $packages)

: > packages.txt
for deb in debs/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    mkdir -p "unpacked/$name"
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "unpacked/$name" --wildcards './usr/share/*'
    echo "$name $(dpkg-deb -f "$deb" Version)" >> packages.txt
done
python3 "$here/extract.py" unpacked .
