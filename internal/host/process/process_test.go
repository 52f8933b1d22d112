package process

import (
	"os"
	"testing"
)

func TestAliveOn(t *testing.T) {
	here := Host{BootID: "boot", PIDNamespace: "pid:[1]", Name: "host"}
	self := os.Getpid()
	for _, test := range []struct {
		name         string
		here         Host
		process      ID
		alive, known bool
	}{
		{"another boot", here, ID{self, 1, "earlier", "pid:[1]", "host"}, false, true},
		{"another boot in another namespace", here, ID{self, 1, "earlier", "pid:[2]", "host"}, false, true},
		{"another host", here, ID{self, 1, "boot", "pid:[1]", "elsewhere"}, false, false},
		{"another boot of another host", here, ID{self, 1, "earlier", "pid:[1]", "elsewhere"}, false, false},
		{"another namespace", here, ID{self, 1, "boot", "pid:[2]", "host"}, false, false},
		{"no boot recorded", here, ID{self, 1, "", "pid:[1]", "host"}, false, false},
		{"no host recorded", here, ID{self, 1, "boot", "pid:[1]", ""}, false, false},
		{"no boot known here", Host{Name: "host"}, ID{self, 1, "boot", "", "host"}, false, false},
		{"no pid", here, ID{0, 1, "boot", "pid:[1]", "host"}, false, false},
		{"negative pid", here, ID{-1, 1, "boot", "pid:[1]", "host"}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			alive, known := aliveOn(test.here, test.process)
			if alive != test.alive || known != test.known {
				t.Errorf("alive = %v, known = %v; want %v, %v", alive, known, test.alive, test.known)
			}
		})
	}
}

func TestSelf(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if self.PID != os.Getpid() || self.StartTime == 0 || self.BootID == "" || self.Host == "" {
		t.Errorf("self = %+v", self)
	}
	if alive, known := Alive(self); !alive || !known {
		t.Errorf("alive = %v, known = %v; want true, true", alive, known)
	}
	reused := self
	reused.StartTime--
	if alive, known := Alive(reused); alive || !known {
		t.Errorf("an earlier process of this pid: alive = %v, known = %v; want false, true", alive, known)
	}
	gone := self
	gone.PID = 1<<22 + 1 // greater than any pid
	if alive, known := Alive(gone); alive || !known {
		t.Errorf("a pid that is not taken: alive = %v, known = %v; want false, true", alive, known)
	}
	if _, err := Lookup(gone.PID); err == nil {
		t.Error("Lookup of a pid that is not taken: no error")
	}
}
