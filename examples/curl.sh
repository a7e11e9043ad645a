#!/usr/bin/env bash
# Publish, pull, acknowledge and give back with nothing but curl, at all brokers of a queue.
#
#   PARTQ_URL=http://127.0.0.1:7411 PARTQ_QUEUE=orders PARTQ_GROUP=workers \
#   PARTQ_PRODUCE_TOKEN=... PARTQ_CONSUME_TOKEN=... examples/curl.sh
#
# It ends with 1 when nothing came for PARTQ_IDLE_S seconds (60): what it gives back becomes a dead
# letter at once in a group with maxRedeliveries 0.
# One broker's URL is enough: each pull names the others. Fields are read with grep, so that nothing
# else is needed; a program of yours reads the JSON.
set -euo pipefail

first=${PARTQ_URL%%,*}
queue=v1/queues/${PARTQ_QUEUE:-orders}
group=$queue/groups/${PARTQ_GROUP:-workers}
run=curl-$(date +%s)-$$ # as a producer and as a member: nobody else has it

# post TOKEN URL BODY [CURL'S ARGUMENTS...]; the body of an error is printed as well
post() {
  curl --silent --show-error --fail-with-body --max-time 30 --header "Authorization: Bearer $1" \
    --json "$3" "${@:4}" "$2"
}

# fields NAME JSON: each number, or text without its quotes, on a line; none if the field is missing
fields() { grep -o "\"$1\":\(-\?[0-9]\+\|\"[^\"]*\"\)" <<<"$2" | cut -d : -f 2- | tr -d '"' || true; }
field() { fields "$@" | sed -n 1p; } # the first one

# ---- publish: numbered per key, so curl may repeat what it has no answer of

publish() { # KEY NUMBER VALUE
  post "$PARTQ_PRODUCE_TOKEN" "$first/$queue/messages" "{\"key\": \"$1\", \"value\": \"$3\"}" \
    --header "Partq-Producer: $run" --header "Partq-Sequence: $2" --retry 5 --retry-connrefused
}

customers=(ada bob cem dia)
count=0
for number in 0 1; do
  for customer in "${customers[@]}"; do
    echo "published $customer $number: $(publish "$customer" $number "order $number")"
    count=$((count + 1))
  done
done
echo "again $customer $number: $(publish "$customer" $number "order $number")"

# ---- consume: each broker delivers the partitions that it owns, so every one of them is asked

urls=("$first")
declare -A rewound answer flow # by broker: the last answer that was received, and the flow
processed=0
idle_s=${PARTQ_IDLE_S:-60}
ends_at=$((SECONDS + idle_s))
while ((processed < count && SECONDS < ends_at)); do
  for url in "${urls[@]}"; do
    # A new member is admitted a moment after it has asked; until then this is refused.
    pulled=$(post "$PARTQ_CONSUME_TOKEN" "$url/$group/pull" "{\"member\": \"$run\", \"incarnation\": \"1\",
      \"max_messages\": 10, \"wait_ms\": 200, \"last_answer\": ${answer[$url]:-null}}") || {
      echo "not yet: $pulled"
      sleep 0.2
      continue
    }
    answer[$url]=$(field answer "$pulled")
    flow[$url]=$(field flow "$pulled")
    for other in $(grep -o '"others":\[[^]]*\]' <<<"$pulled" | grep -o 'http[^"]*' || true); do
      [[ " ${urls[*]} " == *" $other "* ]] || urls+=("$other")
    done
    mapfile -t receipts < <(fields receipt "$pulled") # all that an ack or a nack needs
    mapfile -t keys < <(fields key "$pulled")
    mapfile -t values < <(fields value "$pulled")
    mapfile -t partitions < <(fields partition "$pulled")
    mapfile -t offsets < <(fields offset "$pulled")
    mapfile -t redeliveries < <(fields redeliveries "$pulled")
    rewound=() # by partition: from where on it is redelivered
    for at in "${!receipts[@]}"; do
      ends_at=$((SECONDS + idle_s))
      key=${keys[at]} value=${values[at]} partition=${partitions[at]}
      # Messages behind one that was given back are redelivered after it. To process them now would
      # put them before it, and they may have the same key.
      from=${rewound[$partition]:-}
      [[ -z $from ]] || ((offsets[at] < from)) || continue
      body="\"receipts\": [\"${receipts[at]}\"]"
      if [[ $key == ada && $value == "order 0" && ${redeliveries[at]} == 0 ]]; then
        nacked=$(post "$PARTQ_CONSUME_TOKEN" "$url/$group/nacks" "{$body, \"delay_ms\": 100}")
        rewound[$partition]=$(field rewound_from "$nacked")
        echo "gave back $key: $value"
      else
        post "$PARTQ_CONSUME_TOKEN" "$url/$group/acks" "{$body}" >/dev/null
        echo "processed $key: $value, from $url"
        processed=$((processed + 1))
      fi
    done
  done
done

# ---- leave: what the member holds goes to others at once

for url in "${!flow[@]}"; do
  curl --silent --show-error --fail-with-body --max-time 30 --request DELETE \
    --header "Authorization: Bearer $PARTQ_CONSUME_TOKEN" \
    "$url/$group/members/$run?flow=${flow[$url]}" >/dev/null
done
echo "$processed processed at ${#urls[@]} brokers"
if ((processed < count)); then
  echo "$((count - processed)) of $count did not come for $idle_s s; are they dead letters, or" \
    "does another member hold partitions?" >&2
  exit 1
fi
