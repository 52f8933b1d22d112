package cgroup

import (
	"strings"
	"testing"
)

func TestOwners(t *testing.T) {
	for name, valid := range map[string]bool{
		"e3-12-345-4026531836": true, "e3-1-0-0": true,
		"": false, "e3": false, "e3-host": false, "e3-12-345": false, "e3-0-345-1": false, "e3--12-345-1": false, "e3-+12-345-1": false,
		"e3-012-345-1": false, "e3-12-345-1-1": false, "e3-12-345-x": false, "x-12-345-1": false, "e3-99999999999-1-1": false,
	} {
		if o, ok := parseOwner(name); ok != valid || ok && o.name() != name {
			t.Errorf("%q is %+v, %v", name, o, ok)
		}
	}
}

func TestOwnGroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/\n":               "/",
		"0::/user.slice/a b\n": "/user.slice/a b",
		"3:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/z\n": "/z",
		"0::/gone (deleted)\n":                         "/gone",
		"3:cpu:/x\n":                                   "", "": "", "0::": "", "10::/x\n": "",
	} {
		if got, ok := ownGroup(text); got != want || ok != (want != "") {
			t.Errorf("%q gives %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestFindMount(t *testing.T) {
	const hybrid = `25 30 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
26 30 0:24 / /sys/fs/cgroup/uni\040fied rw,relatime shared:4 master:1 - cgroup2 cgroup rw,nsdelegate
`
	if m, ok := findMount(hybrid); !ok || m != (mount{"/", "/sys/fs/cgroup/uni fied"}) {
		t.Errorf("got %+v, %v", m, ok)
	}
	if m, ok := findMount("25 30 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup2 rw,cpu\n- cgroup2\n"); ok {
		t.Errorf("got %+v where there is none", m)
	}
}

func TestValue(t *testing.T) {
	const text = "oom 3\noom_kill 4\noom_group_kill 5\nbad -1\nworse x\n"
	for name, want := range map[string]int64{"oom": 3, "oom_kill": 4, "oom_group_kill": 5, "bad": 0, "worse": 0, "none": 0, "oo": 0} {
		if got := value(text, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

func TestQuota(t *testing.T) {
	for cores, want := range map[float64]string{1: "100000 100000", 0.5: "50000 100000", 12.25: "1225000 100000", 1e-9: "1000 100000", 1e300: "max 100000"} {
		if got := quota(cores); got != want {
			t.Errorf("%v cores are %q, want %q", cores, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0::/a\n", "25 30 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "oom_kill 3\n", "e3-1-2-3")
	f.Add("0::", "- cgroup2", "oom_kill", "e3-")
	f.Fuzz(func(t *testing.T, groups, mounts, events, name string) {
		if path, ok := ownGroup(groups); ok && !strings.HasPrefix(path, "/") {
			t.Errorf("the group is %q", path)
		}
		findMount(mounts)
		if n := value(events, "oom_kill"); n < 0 {
			t.Errorf("the number is %d", n)
		}
		if o, ok := parseOwner(name); ok && (o.name() != name || o.pid <= 0) {
			t.Errorf("%q is %+v", name, o)
		}
	})
}
