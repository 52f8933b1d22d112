package repo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"e3/objectstore/s3"
)

// ErrLocation reports an invalid location.
var ErrLocation = errors.New("not the location of a repository")

// Schemes of locations that are not folders.
const (
	dynamoScheme   = "dynamodb"
	postgresScheme = "postgres"
	s3Scheme       = "s3"
)

// IsURL reports whether a location names a shared repository rather than a folder.
func IsURL(location string) bool { return strings.Contains(location, "://") }

// CheckFolder refuses a mistyped location that would be taken for a folder's path: "dynamodb:/table/repository".
func CheckFolder(location string) error {
	for scheme, meant := range map[string]string{
		dynamoScheme: dynamoScheme + "://%s", postgresScheme: postgresScheme + "://%s", s3Scheme: "a folder, and for its objects --objects " + s3Scheme + "://%s",
	} {
		if rest, ok := strings.CutPrefix(location, scheme+":"); ok && !strings.HasPrefix(rest, "//") {
			return badLocation(location, "what is meant is probably "+meant+" (a folder of that name is ./%s)", strings.TrimLeft(rest, "/"), location)
		}
	}
	return nil
}

// sharedLocation is <database>/<repository>?…
type sharedLocation struct {
	database
	user          string // by which the database is reached; "": its own default
	repository    string
	objects       bucketLocation
	defaults      bucketLocation // where the objects are if the location says nothing
	lease, settle time.Duration  // 0: the default
}

// bucketLocation is s3://<bucket>/<prefix>?…, or <folder>/<prefix> where machines share a folder, as in a repository's description.
type bucketLocation struct {
	Folder   string `json:"folder,omitempty"`
	Bucket   string `json:"bucket,omitempty"`
	Prefix   string `json:"prefix"`
	Region   string `json:"region,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
}

// String is the location without the parameters that only say how to reach it.
func (l *sharedLocation) String() string { return l.database.String() + "/" + l.repository }

// owner names the repository, however its database is reached.
func (l *sharedLocation) owner() string { return l.database.owner() + "/" + l.repository }

// initCommand is the command that makes a repository at the location, with a placeholder for a bucket that it does not name.
func (l *sharedLocation) initCommand() string {
	query := ""
	place := [3]string{"bucket", cmp.Or(l.objects.Bucket, "<bucket>")}
	if l.objects.Folder != "" {
		place = [3]string{"objects", l.objects.Folder}
	}
	for _, p := range append(l.params(), [][3]string{
		{"s3-region", l.objects.Region, l.defaults.Region}, {"s3-endpoint", l.objects.Endpoint, l.defaults.Endpoint}, {"prefix", l.objects.Prefix, l.defaults.Prefix}, place,
	}...) {
		if p[1] != "" && p[1] != p[2] {
			query += "&" + p[0] + "=" + strings.NewReplacer("%3A", ":", "%2F", "/", "%3C", "<", "%3E", ">").Replace(url.QueryEscape(p[1]))
		}
	}
	location := l.String()
	if l.user != "" {
		location = strings.Replace(location, "://", "://"+l.user+"@", 1)
	}
	return fmt.Sprintf("e3 init '%s?%s'", location, query[1:])
}

// String is the location without the parameters that only say how to reach it.
func (l *bucketLocation) String() string {
	if l.Folder != "" {
		return filepath.Join(l.Folder, filepath.FromSlash(l.Prefix))
	}
	return strings.TrimSuffix(s3Scheme+"://"+l.Bucket+"/"+l.Prefix, "/")
}

// newObjects is where a new repository has its objects.
func (l *sharedLocation) newObjects() bucketLocation {
	at := l.objects
	if at.Folder == "" {
		at.Endpoint = cmp.Or(at.Endpoint, l.defaults.Endpoint)
	}
	return at
}

// A scheme is a kind of database.
type scheme struct {
	params []string // that say how to reach a database
	parse  func(location string, u *url.URL, query map[string]string) (d database, repository string, objects bucketLocation, err error)
}

var schemes = map[string]scheme{
	dynamoScheme:   {[]string{"region", "endpoint"}, parseDynamo},
	postgresScheme: {append([]string{"objects"}, postgresParams...), parsePostgres},
}

// sharedParams are parameters of each shared location.
var sharedParams = []string{"bucket", "prefix", "s3-region", "s3-endpoint", "lease", "settle"}

// parseShared reads the location of a shared repository.
func parseShared(location string) (*sharedLocation, error) {
	name, _, _ := strings.Cut(location, ":")
	kind, ok := schemes[name]
	if !ok {
		return nil, badLocation(location, "it should be %s://…", strings.Join(slices.Sorted(maps.Keys(schemes)), "://… or "))
	}
	u, query, err := parseURL(location, name, slices.Concat(kind.params, sharedParams)...)
	if err != nil {
		return nil, err
	}
	l := &sharedLocation{user: u.User.Username(), objects: bucketLocation{
		Folder: query["objects"], Bucket: query["bucket"], Prefix: strings.Trim(query["prefix"], "/"), Region: query["s3-region"], Endpoint: query["s3-endpoint"],
	}}
	if l.database, l.repository, l.defaults, err = kind.parse(location, u, query); err != nil {
		return nil, err
	}
	l.objects.Region = cmp.Or(l.objects.Region, l.defaults.Region)
	l.objects.Prefix = cmp.Or(l.objects.Prefix, l.defaults.Prefix)
	if text := query["lease"]; text != "" {
		if l.lease, err = time.ParseDuration(text); err != nil || l.lease < MinLease || l.lease > MaxLease {
			return nil, badLocation(location, "lease=%s is not a time from %v to %v", text, MinLease, MaxLease)
		}
	}
	if text := query["settle"]; text != "" {
		if l.settle, err = time.ParseDuration(text); err != nil || l.settle < minSettle || l.settle > maxSettle {
			return nil, badLocation(location, "settle=%s is not a time from %v to %v", text, minSettle, maxSettle)
		}
	}
	return l, l.objects.check(location)
}

// Bounds on how long a sent request may be under way.
const (
	minSettle = 100 * time.Millisecond
	maxSettle = time.Hour
)

// Bounds on a lease's time. A lease shorter than a few round trips to the store cannot be kept.
const (
	MinLease = 300 * time.Millisecond
	MaxLease = 10 * time.Minute
)

// parseBucket reads the location of a folder's objects.
func parseBucket(location string) (*bucketLocation, error) {
	u, query, err := parseURL(location, s3Scheme, "region", "endpoint")
	if err != nil {
		return nil, err
	}
	l := &bucketLocation{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: query["region"], Endpoint: query["endpoint"]}
	if l.Bucket == "" {
		return nil, badLocation(location, "a bucket is missing: s3://<bucket>/<prefix>")
	}
	return l, l.check(location)
}

// check checks the names. A missing bucket is allowed: it may be known from elsewhere.
func (l *bucketLocation) check(location string) error {
	switch {
	case l.Folder != "" && l.Bucket+l.Region+l.Endpoint != "":
		return badLocation(location, "the objects are in a folder or in a bucket: leave out objects=%s, or all that is for S3", l.Folder)
	case l.Folder != "" && (!filepath.IsAbs(l.Folder) || filepath.Clean(l.Folder) != l.Folder):
		return badLocation(location, "objects=%s is no absolute path without detours; name the folder as each machine has it mounted, as in objects=/mnt/team/objects", l.Folder)
	case l.Folder == "" && l.Bucket == "":
		return checkEndpoint(location, l.Endpoint)
	}
	if err := (s3.Options{Bucket: cmp.Or(l.Bucket, "none"), Prefix: l.Prefix}).Check(); err != nil {
		return badLocation(location, "%v", err)
	}
	return checkEndpoint(location, l.Endpoint)
}

func checkEndpoint(location, endpoint string) error {
	if endpoint == "" {
		return nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return badLocation(location, "the endpoint %q is not http(s)://<host>", endpoint)
	}
	return nil
}

// parseURL splits a location and allows only the given parameters, each once.
func parseURL(location, scheme string, known ...string) (*url.URL, map[string]string, error) {
	if err := CheckFolder(location); err != nil && scheme != s3Scheme {
		return nil, nil, err
	}
	whole, hosts := location, ""
	if i := strings.Index(location, "://") + len("://"); scheme == postgresScheme && i >= len("://") { // several hosts with ports are no host of a URL
		end := i + strings.IndexAny(location[i:]+"/", "/?#")
		i += strings.LastIndexByte(location[i:end], '@') + 1
		whole, hosts = location[:i]+location[end:], location[i:end]
	}
	u, err := url.Parse(whole)
	if err != nil || u.Scheme != scheme || u.User != nil && scheme != postgresScheme || u.Fragment != "" || u.Opaque != "" {
		return nil, nil, badLocation(location, "it should be %s://…", scheme)
	}
	if hosts != "" {
		u.Host = hosts
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, badLocation(location, "%v", err)
	}
	query := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, key):
			return nil, nil, badLocation(location, "it has a parameter %q; known are %s", key, strings.Join(known, ", "))
		case len(values[key]) > 1:
			return nil, nil, badLocation(location, "%s is given twice", key)
		}
		query[key] = values[key][0]
	}
	return u, query, nil
}

func badLocation(location, format string, args ...any) error {
	return fmt.Errorf("%q is %w: %s", location, ErrLocation, fmt.Sprintf(format, args...))
}
