package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"e3/internal/fetch"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
)

// Remote fetches the files of inputs from their servers.
type Remote interface {
	// Get fetches a file unless its server says that the known content is still its own.
	Get(ctx context.Context, r *fetch.Request) (fetch.Known, error)
	// Known is what this machine knows of a URL, without a request.
	Known(url string) fetch.Known
}

// unasked is a Remote for questions about the next start: they ask no server.
type unasked struct{ Remote }

var errUnasked = errors.New("no server is asked")

func (unasked) Get(context.Context, *fetch.Request) (fetch.Known, error) {
	return fetch.Known{}, errUnasked
}

// asksNone reports whether these states are for questions about the next start.
func (w *States) asksNone() bool {
	_, none := w.Remote.(unasked)
	return none
}

// A SumError says that a server has other content than the package file demands.
type SumError struct{ Want, Got string }

func (e *SumError) Error() string {
	return fmt.Sprintf("its content is not the demanded one: want sha256 %s, got %s; "+
		"if the new content is meant, write sha256: %s, else name a place that has the old one", e.Want, e.Got, e.Got)
}

func (e *SumError) Unwrap() error { return fetch.ErrContent }

// remotes bounds how many servers are asked at a time.
const remotes = 4

// url brings a file from a server up to date. Demanded content that is stored needs no request. If the server is out of
// reach, the known content serves.
func (s *scan) url(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	switch {
	case slices.Contains(s.set, in.Name):
		return in.Leaf, nil // e3 set has given the input another content
	case s.states.Remote == nil:
		return record.Leaf{}, errUnasked
	}
	has := func(mark string) bool {
		h, err := objectstore.ParseHash(mark)
		return err == nil && (in.Sum == "" || in.Sum == mark) && s.refresh(ctx, h)
	}
	known := s.known(ctx, in, has)
	if known.Mark != "" && (in.Sum != "" || fetch.Fixed(in.Location)) {
		return s.remoteLeaf(in, known), nil
	}
	got, err := s.states.Remote.Get(ctx, &fetch.Request{URL: in.Location, Known: known, Has: has, Summed: in.Sum != "",
		Take: func(ctx context.Context, dir *os.Root, name string) (string, error) {
			info, err := s.states.Objects.Adopt(ctx, dir, name)
			if err == nil && in.Sum != "" && info.Hash.String() != in.Sum {
				err = &SumError{in.Sum, info.Hash.String()}
			}
			return info.Hash.String(), err
		}})
	switch {
	case errors.Is(err, errUnasked) && known.Mark == "":
		return unfetched(in), nil
	case errors.Is(err, errUnasked):
		return s.remoteLeaf(in, known), nil
	case errors.Is(err, fetch.ErrUnreachable) && known.Mark != "":
		s.warn("input %s: %w; the content that is known is used", in.Name, err)
		return s.remoteLeaf(in, known), nil
	case err != nil && known.Mark != "" && !errors.Is(err, fetch.ErrContent) && ctx.Err() == nil:
		return record.Leaf{}, fmt.Errorf("%w; to go on with the content that is known: sha256: %s", err, known.Mark)
	case err != nil:
		return record.Leaf{}, err
	}
	if known.Mark != "" && known.Mark != got.Mark {
		s.warn("input %s: %s has changed: it has %s now; to keep to the content before: sha256: %s",
			in.Name, in.Location, human.Bytes(got.Size), known.Mark)
	}
	return s.remoteLeaf(in, got), nil
}

// known is the content of an input from a server that is stored: as this workspace saw it last, or another one of this
// machine, or what the package file demands.
func (s *scan) known(ctx context.Context, in *record.LinkInput, has func(string) bool) fetch.Known {
	if has(in.Leaf.Hash) {
		return fetch.Known{Seen: in.Seen, Mark: in.Leaf.Hash, Size: in.Leaf.Size}
	}
	if known := s.states.Remote.Known(in.Location); has(known.Mark) {
		return known
	}
	if h, err := objectstore.ParseHash(in.Sum); err == nil && has(in.Sum) {
		if size, err := s.states.Objects.Stat(ctx, h); err == nil { // to have it may be presumed
			return fetch.Known{Mark: in.Sum, Size: size}
		}
	}
	return fetch.Known{}
}

// remoteLeaf is the dataset of known content.
func (s *scan) remoteLeaf(in *record.LinkInput, known fetch.Known) record.Leaf {
	if in.Seen != known.Seen {
		in.Seen = known.Seen
		s.touched.Store(true)
	}
	return record.Leaf{Kind: record.LeafFile, Hash: known.Mark, Size: known.Size}
}

// unfetched stands for content that only a start would fetch: no task has run on it.
func unfetched(in *record.LinkInput) record.Leaf {
	h := in.Sum
	if h == "" {
		h = objectstore.Sum([]byte("e3 not fetched\x00" + in.Location)).String()
	}
	return record.Leaf{Kind: record.LeafFile, Hash: h}
}

// warn tells something that stops nothing.
func (s *scan) warn(format string, args ...any) {
	if s.states.Warn != nil {
		s.states.Warn(fmt.Errorf(format, args...))
	}
}

// Unpinned proposes the sums of files from servers that a package file does not demand, as far as their content is known.
func (w *Datasets) Unpinned(def *manifest.Definition, inputs []record.LinkInput) (warnings []manifest.Warning) {
	for i := range def.Inputs {
		in := &def.Inputs[i]
		if in.Kind != manifest.URLInput || in.Sum != "" || fetch.Fixed(in.URL) {
			continue
		}
		for k := range inputs {
			if l := &inputs[k]; l.Name == in.Name && l.Location == in.URL && l.Leaf.Kind == record.LeafFile {
				warnings = append(warnings, manifest.Warning{File: def.File, Line: int(in.Pos.Line), Column: int(in.Pos.Column),
					Msg: fmt.Sprintf("input %s: another content of %s would go unnoticed by others; to hold it fast: sha256: %s",
						in.Name, shortURL(in.URL), l.Leaf.Hash)})
			}
		}
	}
	return warnings
}

// shortURL is the scheme, the host and the name of the file.
func shortURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, deeper := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(path, '/'); deeper && at >= 0 {
		path = "…" + path[at:]
	}
	return scheme + "://" + host + "/" + path
}
