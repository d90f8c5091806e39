#!/bin/bash
# Ask a worker's service with curl alone: WORKER is its address, TOKEN the owner's token. The folder
# has patients.enc; the answer comes as counts.enc, for the owner of the key.
set -euo pipefail

api() { curl -sS --fail-with-body -H "Authorization: Bearer $TOKEN" "$@"; }
name() { tail -c 32 "$1" | od -An -v -tx1 | tr -d ' \n'; }  # a file ends with its SHA-256

# Upload: every file of the table is an object of that name.
for file in patients.enc/blocks/* patients.enc/*.keys patients.enc/table.manifest; do
  api -T "$file" "$WORKER/v1/objects/$(name "$file")"
done
table=$(name patients.enc/table.manifest)
keys=$(name patients.enc/*.keys)
api -X PUT -H "Content-Type: application/json" -d "{\"keys\": \"$keys\"}" "$WORKER/v1/tables/$table"

# Ask: how many rows there are in each bin of v0, by class.
job=$(api -H "Content-Type: application/json" "$WORKER/v1/jobs" -d "{
  \"kind\": \"ask\", \"table\": \"$table\", \"question\": \"counts\", \"params\": {\"variables\": [\"v0\", \"class\"]}
}" | sed 's/^{"id":"\([0-9a-f]*\)".*/\1/')

# Wait, and download the encrypted answer, which the owner of the key opens.
until api "$WORKER/v1/jobs/$job" | grep -q '"state":"done"'; do sleep 1; done
api -o counts.enc "$WORKER/v1/jobs/$job/result"
