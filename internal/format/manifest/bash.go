package manifest

import "strings"

// bashOwn are the variables that bash sets itself: a script does not see, or does not keep, a value given to them. A
// test compares them with the installed bash.
var bashOwn = map[string]bool{
	"_": true, "BASH": true, "BASHOPTS": true, "BASHPID": true, "COMP_WORDBREAKS": true, "DIRSTACK": true, "EPOCHREALTIME": true,
	"EPOCHSECONDS": true, "EUID": true, "FUNCNAME": true, "GROUPS": true, "HISTCMD": true, "IFS": true, "LINENO": true, "OLDPWD": true,
	"OPTARG": true, "OPTERR": true, "OPTIND": true, "PIPESTATUS": true, "PPID": true, "PS1": true, "PS2": true, "PS4": true,
	"PWD": true, "RANDOM": true, "SECONDS": true, "SHELLOPTS": true, "SHLVL": true, "SRANDOM": true, "UID": true,
}

// BashSets reports whether bash sets the variable itself. BASH_ENV is an exception among its names: bash only reads
// it.
func BashSets(name string) bool {
	return bashOwn[name] || strings.HasPrefix(name, "BASH_") && name != "BASH_ENV"
}
