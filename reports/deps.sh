#!/usr/bin/env bash
# deps.sh - installs from Debian's packages what building needs and is not there.
# Sourced or run by demo.sh and tests/run.sh; needs root or sudo only if something
# is missing.
set -euo pipefail

packages=(gcc libc6-dev make cmake pkg-config libdnnl-dev libhdf5-dev libpng-dev
          libcjson-dev libpcre2-dev libfreetype-dev fonts-dejavu-core)
missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]}" >&2
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            { echo "Needs root or sudo to install ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
