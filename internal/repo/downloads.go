package repo

import (
	"cmp"
	"os"

	"e3/internal/fetch"
	"e3/internal/host/modes"
)

// downloadsName begins the name of the folder of files that are on their way from servers.
const downloadsName = "downloads"

// downloads fetches inputs from servers, into a folder of this user beside the folders of processes: what has come
// can then be moved into the repository.
func downloads(r *Repo) *fetch.Client {
	return &fetch.Client{
		Folder: func() (string, error) { return keeping(r, downloadsName) }, Offline: r.opts.Offline,
		Agent: "e3/" + cmp.Or(r.opts.Version, "dev"), Getenv: r.opts.Getenv, Watch: r.opts.Downloading, Waiting: r.waiting,
	}
}

// TrimDownloads removes files of servers that were begun long ago and never came to their end. A dry run only counts.
func (r *Repo) TrimDownloads(dry bool) (files int, bytes int64, err error) {
	dir := ofUser(r.stores.here.Temp(), downloadsName)
	if _, err := os.Lstat(dir); err != nil {
		return 0, 0, nil // nothing was fetched
	}
	if dir, err = modes.PrivateFolder(dir); err != nil {
		return 0, 0, err
	}
	return fetch.Trim(dir, r.opts.Now().Add(-fetch.Keep), dry)
}
