package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

// tamper is a program for scripts that makes changes to a repository, of any kind, that e3 never makes:
//
//	tamper <repo> record get|rm <partition> <sort>          a record's value on stdout; remove it
//	tamper <repo> record put <partition> <sort> <file>      write the value of a record
//	tamper <repo> stream put <partition> <sort> <file>      make a stream anew
//	tamper <repo> stream get <partition> <sort>             print a stream
//	tamper <repo> stream rm <partition> [<sort>]            remove one stream of a partition, or all
//	tamper <repo> object put <hash> <file>                  spoil an object
//	tamper <repo> object rm <hash>                          lose an object
//	tamper <repo> part root|inputs|outputs|package <ws>     the hash of a part of a workspace
func tamper() {
	if err := runTamper(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "tamper: %v\n", err)
		os.Exit(1)
	}
}

func runTamper(ctx context.Context, args []string) error {
	if len(args) < 4 {
		return errors.New("usage: tamper <repo> record|stream|object get|put|rm …")
	}
	location, what, names := args[0], args[1]+" "+args[2], args[3:]
	var data []byte
	if args[2] == "put" {
		var err error
		if data, err = os.ReadFile(names[len(names)-1]); err != nil {
			return err
		}
	}
	switch what {
	case "object put":
		return replaceObject(names[0], data)
	case "object rm":
		return removeObject(names[0])
	}
	r, err := repo.Open(ctx, location, repo.Options{Version: "tamper"})
	if err != nil {
		return err
	}
	defer r.Close()
	if args[1] == "part" {
		return printPart(ctx, r, args[2], names[0])
	}
	key := refstore.Key{Partition: names[0]}
	if len(names) > 1 {
		key.Sort = names[1]
	}
	switch args[1] {
	case "record":
		return tamperRecord(ctx, r.Records, args[2], key, data)
	case "stream":
		return tamperStream(ctx, r.Records, args[2], key, data)
	}
	return fmt.Errorf("unknown: %s", what)
}

func tamperRecord(ctx context.Context, records refstore.Store, do string, key refstore.Key, data []byte) error {
	rec, err := records.Get(ctx, key)
	if err != nil && !(do == "put" && errors.Is(err, refstore.ErrNotFound)) {
		return err
	}
	switch do {
	case "get":
		_, err = os.Stdout.Write(rec.Value)
	case "rm":
		err = records.Delete(ctx, key, rec.Version)
	case "put":
		_, err = records.Put(ctx, refstore.Record{Key: key, Value: data, Version: rec.Version})
	default:
		err = fmt.Errorf("unknown: record %s", do)
	}
	return err
}

func tamperStream(ctx context.Context, streams refstore.Streams, do string, key refstore.Key, data []byte) error {
	switch do {
	case "get":
		r, err := streams.Open(ctx, key, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, r)
		return errors.Join(err, r.Close())
	case "put":
		if err := streams.Remove(ctx, key); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
		return streams.Append(ctx, key, 0, data)
	case "rm":
		if key.Sort != "" {
			return streams.Remove(ctx, key)
		}
		for key, err := range streams.ListStreams(ctx, refstore.Query{Partition: key.Partition}) {
			if err == nil {
				err = streams.Remove(ctx, key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown: stream %s", do)
}

// replaceObject replaces the content of an object. Copies of it in other places are removed.
func replaceObject(hash string, data []byte) error {
	if url := os.Getenv("OBJECTS"); url != "" {
		if err := removeObject(hash); err != nil {
			return err
		}
		return request(http.MethodPut, objectPath(url, hash), data)
	}
	return onFiles(hash, func(path string) error {
		return errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, data, 0o644))
	})
}

// removeObject removes an object with all copies of it.
func removeObject(hash string) error {
	if url := os.Getenv("OBJECTS"); url != "" {
		if err := request(http.MethodDelete, objectPath(url, hash), nil); err != nil {
			return err
		}
	}
	return onFiles(hash, func(path string) error {
		return errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.Remove(path))
	})
}

// objectPath is the path of an object below a folder or URL.
func objectPath(below, hash string) string { return below + "/" + hash[:2] + "/" + hash[2:] }

// onFiles calls do for each file below the script's folder that holds the object.
func onFiles(hash string, do func(path string) error) error {
	if _, err := objectstore.ParseHash(hash); err != nil {
		return err
	}
	found := os.Getenv("OBJECTS") != ""
	err := filepath.WalkDir(os.Getenv("WORK"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != hash[2:] || filepath.Base(filepath.Dir(path)) != hash[:2] {
			return err
		}
		found = true
		return do(path)
	})
	if err == nil && !found {
		err = fmt.Errorf("object %s: no file has it", hash)
	}
	return err
}

// request sends a request to the S3 server of a test, which needs no signature.
func request(method, url string, body []byte) error {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return cmp.Or(err, resp.Body.Close())
}

// printPart prints the hash of a node of a workspace's tree, or of its package.
func printPart(ctx context.Context, r *repo.Repo, part, ws string) error {
	s, err := r.Workspaces.State(ctx, ws)
	if err != nil {
		return err
	}
	hash := map[string]string{"root": s.RootHash, "package": s.PackageHash}[part]
	if hash == "" {
		h, err := objectstore.ParseHash(s.RootHash)
		if err != nil {
			return err
		}
		data, err := objectstore.ReadAll(ctx, r.Objects, h, 1<<20)
		if err != nil {
			return err
		}
		root, err := record.DecodeNode(data)
		if err != nil {
			return err
		}
		leaf, _ := root.Get(map[string]string{"inputs": "inputs", "outputs": "tasks"}[part])
		hash = leaf.Hash
	}
	fmt.Println(hash)
	return nil
}
