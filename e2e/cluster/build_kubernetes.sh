#!/usr/bin/env bash
# Build programs of Kubernetes 1.20 from Debian's source package, in WORK_DIR, into BIN_DIR.
#
#   build_kubernetes.sh ARCHIVE WORK_DIR BIN_DIR PROGRAM...     ARCHIVE: address of a Debian archive
#
# Repeatable, after an interruption or for more programs: a binary that is in BIN_DIR is complete and is not built again, the
# unpacked tree and Go's cache in WORK_DIR are used again. Needs dpkg-dev, golang-1.19-go, rsync, jq.
set -euo pipefail

readonly version=1.20.2
here=$(cd "$(dirname "$0")" && pwd)
readonly here archive=$1 work_dir=$2 bin_dir=$3
readonly programs=("${@:4}")

step() { printf '== %s\n' "$*"; } # the program that runs this shows it to the user

# The lists are kept in the work directory: the machine's own sources of packages stay as they are.
apt() {
  apt-get --quiet=2 -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work_dir/apt/sources" \
    -o "Dir::State::Lists=$work_dir/apt/lists" -o "Dir::Cache=$work_dir/apt/cache" \
    -o APT::Sandbox::User=root "$@"
}

unpack() {
  step "downloading the source package"
  mkdir -p "$work_dir"/apt/{sources,lists/partial,cache/archives/partial}
  printf 'deb-src [signed-by=%s] %s bookworm main\n' \
    /usr/share/keyrings/debian-archive-keyring.gpg "$archive" >"$work_dir/apt/sources/source.list"
  apt update
  (cd "$work_dir" && apt source --download-only kubernetes)
  step "unpacking it"
  rm -rf "$work_dir/tree"
  dpkg-source --extract "$work_dir"/kubernetes_*really"$version"-*.dsc "$work_dir/tree" # applies its patches
}

# The vendored reflect2 1.0.1 crashes with Go 1.18 and newer as soon as a custom resource is created.
replace_reflect2() {
  local package=$work_dir/reflect2 vendored=$work_dir/tree/vendor/github.com/modern-go/reflect2
  rm -rf "$package"
  mkdir "$package"
  (cd "$package" && apt-get --quiet=2 -o APT::Sandbox::User=root download \
    golang-github-modern-go-reflect2-dev)
  dpkg-deb --extract "$package"/*.deb "$package"
  rm -f "$vendored"/*.go "$vendored"/*.s
  cp "$package"/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$vendored/"
  rm -f "$vendored"/*_test.go
}

# Put WITH in the place of WHAT in FILE of the tree: replace FILE WHAT WITH
replace() {
  grep -qF "$2" "$work_dir/tree/$1" || { echo "no \"$2\" in $1" >&2; return 1; }
  sed -i "s/${2//\*/\\*}/$3/" "$work_dir/tree/$1"
}

# This kubelet lets go of a pod only after the pod's sandbox was collected, once a minute, and tells the
# API every ten seconds: a StatefulSet would wait a minute for each pod it replaces. Later versions
# remove the sandbox at once.
hasten_pod_removal() {
  replace pkg/kubelet/kubelet.go 'ContainerGCPeriod = time.Minute' 'ContainerGCPeriod = time.Second'
  replace pkg/kubelet/status/status_manager.go 'syncPeriod = 10 * time.Second' 'syncPeriod = time.Second'
}

prepare() {
  unpack
  replace_reflect2
  hasten_pod_removal
  # Without a git checkout the version would read "v0.0.0-master", which helm cannot compare.
  cat >"$work_dir/version" <<VERSION
KUBE_GIT_COMMIT='unknown'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v$version'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
VERSION
  mkdir -p "$work_dir/tree/.go/src/k8s.io"
  ln -sfn "$work_dir/tree" "$work_dir/tree/.go/src/k8s.io/kubernetes"
  touch "$work_dir/prepared"
}

# `make`, because plain `go build` lacks the code that it generates first. Nothing of the caller's Go
# settings is passed on.
build() {
  env -i PATH="/usr/lib/go-1.19/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME="$work_dir" LC_ALL=C \
    GOPATH="$work_dir/tree/.go" GOCACHE="$work_dir/gocache" GOPROXY=off \
    CGO_ENABLED=0 KUBE_GIT_VERSION_FILE="$work_dir/version" \
    make -C "$work_dir/tree" WHAT="cmd/$1"
  mv "$work_dir/tree/_output/bin/$1" "$bin_dir/$1"
}

build_pause() {
  env -i PATH="/usr/lib/go-1.19/bin:/usr/bin:/bin" HOME="$work_dir" GOCACHE="$work_dir/gocache" \
    CGO_ENABLED=0 GO111MODULE=off go build -o "$bin_dir/pause" "$here/pause.go"
}

main() {
  mkdir -p "$work_dir" "$bin_dir"
  [[ -e $work_dir/prepared ]] || prepare
  local number name
  for number in "${!programs[@]}"; do
    name=${programs[number]}
    [[ -x $bin_dir/$name ]] && continue
    step "$name ($((number + 1)) of ${#programs[@]})"
    if [[ $name == pause ]]; then build_pause; else build "$name"; fi
  done
}

main
