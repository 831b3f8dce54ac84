# shellcheck shell=sh
# An application that runs in a container image. Inside it has the same view as outside: its component's directory, its
# input files, and the directory that its user chose, under the same paths, with the same variables.
# shellcheck disable=SC2154  # other parts of the script set them

# Print the directories that the image needs to see, one a line.
koala_seen_inside() {
    printf '%s\n' "$koala_home"
    case $koala_directory in
    /*) printf '%s\n' "$koala_directory" ;;
    esac
    # Input files are links to their places at the site.
    find "$koala_home/workspace" -type l -exec readlink '{}' ';' | sed -n 's,^\(/.*\)/[^/]*$,\1,p' | sort -u
}

# Become the program with its arguments, in the image.
koala_contained() {
    # shellcheck disable=SC2016  # for the shell inside to expand
    case $koala_container_tool in
    charliecloud) set -- "--cd=$(pwd)" "$koala_image" -- "$@" ;;
    apptainer) set -- --pwd "$(pwd)" "$koala_image" "$@" ;;
    podman) set -- --workdir "$(pwd)" "$koala_image" "$@" ;;
    # Programs start in a directory of the image.
    enroot) set -- "$koala_image" /bin/sh -c 'cd "$0" && exec "$@"' "$(pwd)" "$@" ;;
    esac
    while IFS= read -r koala_line; do
        case $koala_container_tool in
        charliecloud) set -- "--bind=$koala_line" "$@" ;;
        apptainer) set -- --bind "$koala_line" "$@" ;;
        podman) set -- --volume "$koala_line:$koala_line" "$@" ;;
        enroot) set -- --mount "$koala_line:$koala_line" "$@" ;;
        esac
    done <<EOF
$(koala_seen_inside)
EOF
    case $koala_container_tool in
    charliecloud)
        # It needs the user's name, which a batch system does not always provide.
        USER=${USER:-$(id -un)}
        export USER
        exec ch-run "$@"
        ;;
    apptainer) exec apptainer exec "$@" ;;
    podman)
        exec podman run --rm --env-host --network host --ipc host --userns keep-id --entrypoint '' "$@"
        ;;
    enroot)
        while IFS= read -r koala_line; do
            set -- --env "$koala_line" "$@"
        done <<EOF
$(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p')
EOF
        exec enroot start --rw "$@"
        ;;
    esac
}
