package room

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Device is shown in the room at Target, below /dev. Programs see its file's mode and owner.
type Device struct{ Source, Target string }

// deviceFiles are the files, below /dev, of the devices that a task can name. Drivers' libraries are in /usr.
var deviceFiles = map[string][]string{
	"nvidia": {"nvidia[0-9]*", "nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/*"},
}

// Devices returns the devices with these names that are in dev, which is /dev. There must be at least one device for
// each name.
func Devices(dev string, names []string) ([]Device, error) {
	var list []Device
	for _, name := range names {
		before := len(list)
		for _, pattern := range deviceFiles[name] {
			paths, _ := filepath.Glob(filepath.Join(dev, pattern))
			for _, path := range paths {
				if at, err := filepath.Rel(dev, path); err == nil {
					list = append(list, Device{Source: path, Target: "/dev/" + filepath.ToSlash(at)})
				}
			}
		}
		if len(list) == before {
			return nil, fmt.Errorf("devices: [%s]: this machine has none, or its driver is not loaded: %s has no %s", name, dev,
				strings.Join(deviceFiles[name], ", "))
		}
	}
	return list, nil
}

// validDevice reports whether a device lies below /dev in the room, outside of the folders that every room has there.
func validDevice(d Device) bool {
	at, below := strings.CutPrefix(d.Target, "/dev/")
	folder, _, _ := strings.Cut(at, "/")
	return below && filepath.IsAbs(d.Source) && filepath.Clean(d.Target) == d.Target && !strings.ContainsRune(d.Source+d.Target, 0) &&
		!slices.Contains([]string{"pts", "shm", "fd"}, folder)
}
