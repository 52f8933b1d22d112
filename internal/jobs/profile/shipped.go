package profile

import "embed"

// Shipped has the profiles that come with e3, as profiles/<name>.yaml.
//
//go:embed profiles
var Shipped embed.FS
