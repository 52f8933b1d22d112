package fetch

import "testing"

func TestFindAccount(t *testing.T) {
	for _, c := range []struct{ text, login, password string }{
		{"machine h login a password b", "a", "b"},
		{"machine H password b login a # x", "a", "b"},
		{"machine o login x password y machine h\nlogin a\npassword b", "a", "b"},
		{"macdef init\nmachine h login x password y\n\nmachine h login a password b", "a", "b"},
		{"machine h login a password b\nmachine h login x password y", "a", "b"},
		{"machine h login machine password password", "machine", "password"},
		{"machine h login a password #b", "a", "#b"},
		{"machine h login a password b default login x password y", "a", "b"},
		{"machine o login h password b", "", ""},
		{"default login x password y", "", ""},
		{"", "", ""},
	} {
		login, password, found := findAccount(c.text, "h")
		if login != c.login || password != c.password || found != (c.login != "") {
			t.Errorf("%q: %q, %q, %v, want %q, %q", c.text, login, password, found, c.login, c.password)
		}
	}
}

func FuzzFindAccount(f *testing.F) {
	f.Add("machine h login a password b\nmacdef m\nx\n\n#c\ndefault login d password e", "h")
	f.Fuzz(func(t *testing.T, text, machine string) {
		if login, password, found := findAccount(text, machine); !found && login+password != "" {
			t.Errorf("no entry, and %q %q", login, password)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 5-9/10")
	f.Fuzz(func(t *testing.T, text string) {
		if from, total, ok := contentRange(text); ok && (from < 0 || from >= total) {
			t.Errorf("%q is from %d of %d", text, from, total)
		}
	})
}
