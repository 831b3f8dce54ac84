# shellcheck shell=sh
# How jobs ended that a listing shows no more. A script sets how many seconds the accounts are waited for.

: "${koala_accounts_s?}"

# koala_history NUMBERS...: ask the controller as long as it remembers them, then its accounting where there is one.
# What the controller does not know holds nothing any more, so that accounts that cannot be read are no reason to wait.
koala_history() {
    koala_plain_output
    for koala_each in "$@"; do
        if koala_said=$(scontrol show job -o "$koala_each" 2>&1); then
            printf '%s\n' "$koala_said"
            continue
        fi
        case $koala_said in
        *"nvalid job id"*) ;;
        *)
            printf '%s\n' "$koala_said" >&2
            return 1
            ;;
        esac
    done
    echo 'koala sacct'
    koala_at_most "$koala_accounts_s" sacct --noheader --parsable2 --allocations --duplicates \
        --format=JobIDRaw,JobName,State,ExitCode,Submit --jobs="$(IFS=, && printf '%s' "$*")" 2>/dev/null || :
}
