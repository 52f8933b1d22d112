package bash

import "strings"

// own are the words that are not programs: bash's builtins and keywords. A test compares them with the installed bash. And
// setsid: that program behaves differently in the leader of a process group, which the command is without bash.
var own = set(`. : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs
	disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile
	popd printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type
	typeset ulimit umask unalias unset wait if then else elif fi case esac for select while until do done in function
	time coproc setsid`)

// special are variables that bash sets, changes, or obeys. A test compares them with the installed bash.
var special = set(`_ ABORT CDPATH CHARSET CHILD_MAX COLUMNS DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE
	FCEDIT FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC
	INSIDE_EMACS LANGUAGE LINENO LINES LOCPATH MACHTYPE MAIL MAILCHECK MAILPATH MAPFILE NLSPATH OLDPWD OPTARG OPTERR
	OPTIND OSTYPE OUTPUT_CHARSET PIPESTATUS POSIXLY_CORRECT POSIX_PEDANTIC PPID PROMPT_COMMAND PROMPT_DIRTRIM PWD RANDOM
	REPLY SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TERMCAP TIMEFORMAT TMOUT UID auto_resume histchars ignoreeof`)

// families are prefixes of such names. The dynamic linker and the C library obey the variables of the last prefixes, at
// the start of bash and again of the command.
var families = []string{"BASH", "COMP", "COPROC", "HIST", "LC_", "PS", "READLINE_", "SSH", "TEXTDOMAIN",
	"LD_", "GLIBC_", "MALLOC_", "GCONV_", "GETCONF_", "RES_OPTIONS", "LOCALDOMAIN"}

// Special reports whether bash does more with a variable of its environment than pass it on. All names that are not
// identifiers are special.
func Special(name string) bool {
	if special[name] {
		return true
	}
	for _, family := range families {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return !isName(name)
}

func set(words string) map[string]bool {
	members := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		members[word] = true
	}
	return members
}
