package manifest_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// askBash returns the values of a variable in a script, in a function of it and in a program that it calls.
func askBash(t *testing.T, bash, name, value string) string {
	t.Helper()
	script := fmt.Sprintf(`show() { printf '%%s|' "${%[1]s-UNSET}"; }
printf '%%s|' "${%[1]s-UNSET}"; true; printf '%%s|' "${%[1]s-UNSET}"; show; printenv %[1]s || printf UNSET`, name)
	cmd := exec.Command(bash, "-euo", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", name + "=" + value}
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprint(string(out), err)
	}
	return string(out)
}

// BashSets knows every variable whose value does not reach a script unchanged. A package file must not use such a name,
// because the task would run with another value than the one in its key.
func TestBashSetsWhatDoesNotArrive(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: install it")
	}
	out, err := exec.Command(bash, "-c", "compgen -v").Output()
	if err != nil {
		t.Skipf("this bash does not tell its variables: %v", err)
	}
	names := map[string]bool{"_": true, "__": true, "x": true, "BASH_ENV": true}
	for _, name := range strings.Fields(string(out)) {
		names[name] = true
	}
	for _, name := range strings.Fields(`BASHOPTS BASHPID BASH_ALIASES BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LINENO BASH_SOURCE BASH_SUBSHELL CDPATH
		COLUMNS COMP_CWORD COMP_WORDBREAKS COMP_WORDS COPROC DIRSTACK ENV EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME FUNCNEST GLOBIGNORE
		GROUPS HISTCMD HISTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF LINENO LINES MACHTYPE MAIL MAILCHECK MAPFILE OLDPWD OPTARG OPTERR OPTIND
		OSTYPE PIPESTATUS PPID PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_LINE REPLY SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TIMEFORMAT
		TMOUT UID USER auto_resume histchars`) {
		names[name] = true
	}
	delete(names, "PATH") // e3's own, without which nothing is found
	variable := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	for name := range names {
		if !variable.MatchString(name) || manifest.BashSets(name) {
			continue
		}
		for _, value := range []string{"a value", "7"} {
			if got, want := askBash(t, bash, name, value), strings.Repeat(value+"|", 3)+value+"\n"; got != want {
				t.Errorf("%s=%q arrives as %q: bash sets it", name, value, got)
			}
		}
	}
}

// A script cannot use bash's own names for anything; a command without a shell can.
func TestBashNamesInScripts(t *testing.T) {
	for _, test := range []struct{ keys, name string }{
		{"in: {_: a}", "_"},
		{"matrix: {_: [x, y]}", "_"},
		{"env: {RANDOM: '7'}", "RANDOM"},
		{"env: {BASH_VERSION: '7'}", "BASH_VERSION"},
		{"pass_env: [PPID]", "PPID"},
		{"secrets: [IFS]", "IFS"},
		{"key_env: [SHLVL]", "SHLVL"},
	} {
		const file = "e3: 1\nname: p\ninputs:\n  a: {value: 1}\ntasks:\n  t:\n    out: o\n    %s\n    run: %s\n"
		_, err := manifest.Parse("e3.yaml", []byte(fmt.Sprintf(file, test.keys, "echo x >o")))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("bash sets %q itself", test.name)) {
			t.Errorf("%s: %v", test.keys, err)
		}
		if _, err := manifest.Parse("e3.yaml", []byte(fmt.Sprintf(file, test.keys, "[sh, -c, x]"))); err != nil {
			t.Errorf("%s, without a shell: %v", test.keys, err)
		}
	}
	_, err := manifest.Parse("e3.yaml", []byte("e3: 1\nname: p\ntasks:\n  t:\n    out: {_: o, b: p}\n    run: echo x >o\n"))
	if err == nil || !strings.Contains(err.Error(), `bash sets "_" itself`) {
		t.Errorf("an output: %v", err)
	}
}
