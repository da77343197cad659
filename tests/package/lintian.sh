#!/bin/sh
# What lintian says of the packages in build/deb, as TAP. Overrides are in debian/, each with its reason.
set -u
cd "$(dirname "$0")/../.." || exit 1

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}
command -v lintian >/dev/null || skip "no lintian: setup/packages.sh deb installs it"
set -- build/deb/*.changes
[ -e "$1" ] || skip "no packages in build/deb: make deb builds them"

said=$(mktemp)
trap 'rm -f "$said"' EXIT
code=0
LC_ALL=C lintian --allow-root --tag-display-limit 0 --fail-on none --display-info "$@" >"$said" 2>&1 || code=$?
sed 's/^/# /' "$said"

result() {
	if [ "$2" = 0 ]; then
		echo "ok $1 - lintian: $3"
	else
		echo "not ok $1 - lintian: $3"
	fi
}
result 1 $code "it looked at all packages"
result 2 "$(grep -c '^E:' "$said")" "no errors"
result 3 "$(grep -c '^W:' "$said")" "no warnings"
result 4 "$(grep -c '\(unused\|mismatched\)-override' "$said")" "each override is needed"
echo "1..4"
