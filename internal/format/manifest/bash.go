package manifest

import "strings"

// bashOwn are variables that bash sets itself: in a script they do not have, or do not keep, the value that they were given. A test asks
// the bash that is there.
var bashOwn = map[string]bool{
	"_": true, "BASH": true, "BASHOPTS": true, "BASHPID": true, "COMP_WORDBREAKS": true, "DIRSTACK": true, "EPOCHREALTIME": true,
	"EPOCHSECONDS": true, "EUID": true, "FUNCNAME": true, "GROUPS": true, "HISTCMD": true, "IFS": true, "LINENO": true, "OLDPWD": true,
	"OPTARG": true, "OPTERR": true, "OPTIND": true, "PIPESTATUS": true, "PPID": true, "PS1": true, "PS2": true, "PS4": true,
	"PWD": true, "RANDOM": true, "SECONDS": true, "SHELLOPTS": true, "SHLVL": true, "SRANDOM": true, "UID": true,
}

// BashSets says whether bash sets the variable itself. BASH_ENV, of those that begin like bash's own, is only read.
func BashSets(name string) bool {
	return bashOwn[name] || strings.HasPrefix(name, "BASH_") && name != "BASH_ENV"
}
