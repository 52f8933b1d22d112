package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// aptLimit is how long Debian's packages may take to be fetched and installed.
const aptLimit = 5 * time.Minute

// installPackages installs packages of Debian if missing says that something of theirs is not there, one process at a time.
func installPackages(name string, packages []string, missing func() error) error {
	return withPackages(name, missing, append([]string{"-qq", "install", "-y", "--no-install-recommends"}, packages...))
}

// withPackages runs apt-get with these arguments if missing says that something is not there. name is that of its lock.
func withPackages(name string, missing func() error, args []string) error {
	if missing() == nil {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("neither it nor apt-get is on the PATH")
	}
	cache, err := cacheFolder()
	if err == nil {
		err = os.MkdirAll(cache, 0o755)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), aptLimit)
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(cache, name+".lock"))
	if err != nil {
		return fmt.Errorf("another process installs it: %w", err)
	}
	defer unlock()
	if missing() == nil {
		return nil
	}
	failed := filepath.Join(cache, name+".failed")
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < failureHolds {
		why, _ := os.ReadFile(failed)
		return fmt.Errorf("its installation failed a moment ago: %s", why)
	}
	for _, args := range [][]string{{"-qq", "update"}, args} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.WaitDelay = time.Second
		if output, err := cmd.CombinedOutput(); err != nil {
			why := fmt.Sprintf("apt-get %s: %v: %.500s", args[1], errors.Join(err, ctx.Err()), bytes.TrimSpace(output))
			os.WriteFile(failed, []byte(why), 0o644)
			return fmt.Errorf("its installation failed: %s", why)
		}
	}
	return missing()
}

// unpackPackages fetches packages of Debian and unpacks them into a folder, which appears whole: what they have does not get in the
// way of what is installed.
func unpackPackages(folder string, packages ...string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(folder), filepath.Base(folder)+".*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), aptLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `apt-get download "$@" && for each in *.deb; do dpkg-deb -x "$each" whole || exit; done`, "sh"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch %s: %w: %.500s", strings.Join(packages, ", "), err, bytes.TrimSpace(out))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "whole"), folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
