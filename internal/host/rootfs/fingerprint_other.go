//go:build !linux

package rootfs

import "errors"

// Fingerprint returns an error: images need rooms, and these need Linux.
func Fingerprint(string) (string, error) { return "", errors.ErrUnsupported }
