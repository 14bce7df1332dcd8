#!/bin/sh
# make_text.sh - the text of the pair: prose from Debian's documentation packages.
# usage: make_text.sh SCRATCH_DIR     (Debian 12; no root needed)
# Leaves SCRATCH_DIR/train.txt, check.txt, heldout.txt and packages.txt (versions).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/debs"
cd "$1"

list() { awk '!/^#/ { print $1, $2 }' "$here/licences.txt"; }
(cd debs && list | cut -d' ' -f2 | xargs apt-get -q download)

: > packages.txt
list | while read -r use name; do
    deb=$(ls debs/"${name}"_*.deb)
    mkdir -p "unpacked/$use/$name"
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "unpacked/$use/$name" --wildcards './usr/share/*'
    echo "$use $name $(dpkg-deb -f "$deb" Version)" >> packages.txt
done
python3 "$here/extract.py" unpacked .
