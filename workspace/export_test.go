package workspace

// CompareVersions is how versions of a package are ordered.
var CompareVersions = compareVersions
