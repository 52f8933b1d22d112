package explain

import "testing"

func TestProgramText(t *testing.T) {
	for _, c := range []struct{ program, changed, want string }{
		{"fit", "program fit", "fit is another program"},
		{"fit", "", "fit is another program"},
		{"fit", "library libc.so.6", "fit is another program: library libc.so.6 changed"},
		{"./bin/fit", "interpreter python3", "python3, the interpreter of ./bin/fit, is another program"},
		{"./bin/fit", "interpreter python3, library libz.so.1", "python3, the interpreter of ./bin/fit, is another program: library libz.so.1 changed"},
		{"./bin/fit", "interpreter env, interpreter python3", "env, python3, interpreters of ./bin/fit, are other programs"},
		{"./bin/fit", "library libc.so.6", "what loads ./bin/fit is different: library libc.so.6 changed"},
		{"./bin/fit", "", "what loads ./bin/fit is different"},
	} {
		if got := programText(c.program, c.changed); got != c.want {
			t.Errorf("%s, %q: got %q, want %q", c.program, c.changed, got, c.want)
		}
	}
}
