package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The programs that can be installed. The versions are those that e3 was tried with.
const (
	dynalitePackage  = "dynalite@4.0.0"
	versitygwPackage = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	uvPackage        = "uv==0.13.9"
)

var npmDynalite = &installable{
	name:    dynalitePackage,
	program: "node_modules/.bin/dynalite",
	limit:   2 * time.Minute,
	command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
		npm, err := exec.LookPath("npm")
		if err != nil {
			return nil, errors.New("neither it nor npm is on the PATH")
		}
		return exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-package-lock",
			"--fetch-retries=0", "--loglevel=error", dynalitePackage), nil
	},
}

var goVersityGW = &installable{
	name:    "versitygw@v1.8.0",
	program: "versitygw",
	limit:   6 * time.Minute,
	command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
		if os.Getenv("CI") == "" && os.Getenv("E3_TEST_INSTALL") == "" {
			return nil, errors.New("it is not on the PATH")
		}
		goTool, err := exec.LookPath("go")
		if err != nil {
			return nil, errors.New("neither it nor go is on the PATH")
		}
		// Not optimised: it is compiled for a minute or two, and then does little.
		cmd := exec.CommandContext(ctx, goTool, "install", "-gcflags=all=-N -l -dwarf=false", versitygwPackage)
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOOS=", "GOARCH=", "CGO_ENABLED=0")
		return cmd, nil
	},
}

var pipUV = &installable{
	name:    uvPackage,
	program: "bin/uv",
	limit:   2 * time.Minute,
	command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
		python, err := exec.LookPath("python3")
		if err != nil {
			return nil, errors.New("neither it nor python3 is on the PATH")
		}
		return exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=0",
			"--target="+dir, uvPackage), nil
	},
}

// UV returns the program $E3_TEST_UV, or uv on the PATH, or what pip installs. It is no server.
func UV() (string, error) { return find("E3_TEST_UV", "uv", pipUV) }

// failureHolds is how long a failed installation is not tried again: without a network, many test programs would each wait
// for it.
const failureHolds = 10 * time.Minute

// An installable is a program that is installed once per user, by the first test that needs it.
type installable struct {
	name    string // of the package with its version, and of its folder
	program string // in the folder
	limit   time.Duration
	command func(ctx context.Context, dir string) (*exec.Cmd, error)
}

// there returns the program if it is installed.
func (i *installable) there() (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, i.name, filepath.FromSlash(i.program))
	_, err = os.Stat(program)
	return program, err
}

// install returns the program that an earlier call installed, else installs it, one process at a time. The folder appears
// by a rename, so it appears whole.
func (i *installable) install() (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, i.name)
	program := filepath.Join(folder, filepath.FromSlash(i.program))
	ctx, cancel := context.WithTimeout(context.Background(), i.limit)
	defer cancel()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if _, err := i.command(ctx, folder); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, i.name+".lock"))
	if err != nil {
		return "", fmt.Errorf("another process installs it: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	failed := filepath.Join(cache, i.name+".failed")
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < failureHolds {
		why, _ := os.ReadFile(failed)
		return "", fmt.Errorf("its installation failed a moment ago: %s", why)
	}
	dir, err := os.MkdirTemp(cache, i.name+".*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd, err := i.command(ctx, dir)
	if err != nil {
		return "", err
	}
	cmd.WaitDelay = time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		why := fmt.Sprintf("%v: %.500s", errors.Join(err, ctx.Err()), strings.TrimSpace(string(output)))
		os.WriteFile(failed, []byte(why), 0o644)
		return "", fmt.Errorf("its installation failed: %s", why)
	}
	os.Remove(failed)
	os.RemoveAll(folder) // it lacks the program
	if err := os.Rename(dir, folder); err != nil {
		return "", err
	}
	return program, nil
}
