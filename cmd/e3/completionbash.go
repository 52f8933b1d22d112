package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Cobra's script for bash reads the command line by a function of the package bash-completion, and prints an error at each
// tab where that is not installed. splitByBash takes its place there.
const (
	splitByPackage = `    _get_comp_words_by_ref "$@" cur prev words cword` + "\n"

	splitByBash = `    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    # Bash also splits words at = and :. What no space separates is joined again.
    local rest="${COMP_LINE}" trimmed i
    words=()
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        trimmed="${rest#"${rest%%[![:space:]]*}"}"
        if ((i == 0)) || [[ "$trimmed" != "$rest" ]]; then
            words+=("${COMP_WORDS[i]}")
        else
            words[${#words[@]}-1]+="${COMP_WORDS[i]}"
        fi
        rest="${trimmed#"${COMP_WORDS[i]}"}"
        if ((i == COMP_CWORD)); then
            cword=$((${#words[@]} - 1))
        fi
    done
    cur="${words[cword]}"
    prev="${words[cword > 0 ? cword - 1 : 0]}"
`
)

// bashCompletion prints the script for bash, which needs no other package.
func bashCompletion(cmd *cobra.Command, descriptions bool) error {
	var b bytes.Buffer
	if err := cmd.Root().GenBashCompletionV2(&b, descriptions); err != nil {
		return err
	}
	script := b.String()
	if strings.Count(script, splitByPackage) != 1 {
		return errors.New("the completion script for bash is not the one that is known")
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), strings.Replace(script, splitByPackage, splitByBash, 1))
	return err
}
