package trace

import (
	"path"
	"slices"
	"strings"
)

// Folders that hold no sources: of tools, caches, and keys. Nothing in them is reported.
var privateFolders = []string{
	".git", ".hg", ".svn", ".e3", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud", ".password-store",
	"__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "node_modules", ".cache",
}

// Names, in small letters, of files that hold credentials.
var (
	credentialNames = []string{
		".env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".gitconfig",
		".dockercfg", ".s3cfg", ".boto", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", "secrets", "kubeconfig",
	}
	credentialEndings = []string{".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".gpg", ".asc", ".pyc"}
	credentialWords   = []string{"credential", "secret", "password", "passwd", "token", "apikey", "api_key", "api-key", "private_key", "service-account", "service_account"}
	credentialForms   = []string{"", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".txt", ".env", ".xml", ".properties"}
)

// Private reports whether a path of a project must not be proposed as an input: it belongs to a tool, or looks like a
// credential.
func Private(rel string) bool {
	for part := range strings.SplitSeq(path.Dir(rel), "/") {
		if slices.Contains(privateFolders, part) {
			return true
		}
	}
	base := path.Base(rel)
	if slices.Contains(privateFolders, base) {
		return true
	}
	base = strings.ToLower(base)
	ext := path.Ext(base)
	stem := strings.TrimSuffix(base, ext)
	if slices.Contains(credentialNames, base) || strings.HasPrefix(base, ".env.") || slices.Contains(credentialEndings, ext) ||
		slices.Contains(credentialNames, stem) && slices.Contains(credentialForms, ext) {
		return true
	}
	// The name of a program or a table may only mean that it is about tokens. A file of settings with such a name holds
	// tokens.
	return slices.Contains(credentialForms, ext) && slices.ContainsFunc(credentialWords, func(word string) bool {
		return stem == word || stem == word+"s" || strings.HasSuffix(stem, "-"+word) || strings.HasSuffix(stem, "_"+word) ||
			strings.HasSuffix(stem, "."+word) || strings.HasSuffix(stem, "-"+word+"s") || strings.HasSuffix(stem, "_"+word+"s")
	})
}
