package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres returns the address of a new database on a PostgreSQL server that all tests of this process share. It takes
// initdb and postgres of version 13 or later.
func Postgres(tb TB) string {
	tb.Helper()
	s := sharedPostgres()
	if s.missing != nil {
		tb.Skipf("no PostgreSQL: %v (get it with: apt install postgresql)", s.missing)
	}
	if s.err != nil {
		tb.Fatalf("start PostgreSQL: %v", s.err)
	}
	return s.server.Database(tb)
}

// sharedPostgres is the server of this process. Its folder is removed by a later process's.
var sharedPostgres = sync.OnceValue(func() (s struct {
	server       *PostgresServer
	missing, err error
}) {
	if s.missing = havePostgres(); s.missing == nil {
		s.server, s.err = startPostgres(nil)
	}
	return s
})

func havePostgres() error {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := postgresProgram(program); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		_, err := postgresUser()
		return err
	}
	return nil
}

// postgresProgram finds a program of the server's. Debian has them outside of the PATH, in a folder for each version.
func postgresProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); err != nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return path, err
}

// postgresUser is the user as which the server runs where this process is root's: it refuses root.
func postgresUser() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// A PostgresServer is a server of one test's own, which can be stopped and started again.
type PostgresServer struct {
	dir, port string
	options   []string
	process   *process
}

// NewPostgres starts a server with options such as "-c", "ssl=on".
func NewPostgres(tb TB, options ...string) *PostgresServer {
	tb.Helper()
	if err := havePostgres(); err != nil {
		tb.Skipf("no PostgreSQL: %v (get it with: apt install postgresql)", err)
	}
	s, err := startPostgres(options)
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		s.Stop()
		os.RemoveAll(s.dir)
	})
	return s
}

// startPostgres makes a cluster in memory, if the machine can, and starts a server on it.
func startPostgres(options []string) (*PostgresServer, error) {
	s, err := makePostgres(options)
	if err != nil {
		return nil, err
	}
	init := s.command("initdb", "-D", s.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %.500s", err, out)
	}
	return s, s.start()
}

// makePostgres makes the folder of a server, which has no data yet, and finds a port.
func makePostgres(options []string) (*PostgresServer, error) {
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = os.TempDir()
	}
	sweepPostgres(base)
	dir, err := os.MkdirTemp(base, fmt.Sprintf("e3-postgres-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{dir: dir, options: options}
	if os.Getuid() == 0 {
		user, err := postgresUser()
		if err == nil {
			err = os.Chown(dir, int(user.Uid), int(user.Gid))
		}
		if err != nil {
			return nil, err
		}
	}
	address, err := freeAddress()
	if err == nil {
		_, s.port, err = net.SplitHostPort(address)
	}
	return s, err
}

// Replica starts a server that copies this one, and whose users may only read until it is promoted.
func (s *PostgresServer) Replica(tb TB) *PostgresServer {
	tb.Helper()
	r, err := makePostgres(nil)
	if err == nil {
		var out []byte
		if out, err = r.command("pg_basebackup", "-D", r.Data(), "-R", "--checkpoint=fast", "--no-sync", "-d", s.URL("")).CombinedOutput(); err != nil {
			err = fmt.Errorf("pg_basebackup: %w: %.500s", err, out)
		} else {
			err = r.start()
		}
	}
	if err != nil {
		tb.Fatalf("start a replica: %v", err)
	}
	tb.Cleanup(func() {
		r.Stop()
		os.RemoveAll(r.dir)
	})
	return r
}

// Promote makes a replica a server of its own.
func (s *PostgresServer) Promote(tb TB) {
	tb.Helper()
	s.Exec(tb, "postgres", "SELECT pg_promote(true, 30)")
}

// sweepPostgres removes the folders of processes that are gone.
func sweepPostgres(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "e3-postgres-*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[2])
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			os.RemoveAll(dir)
		}
	}
}

// Data is the server's folder of data.
func (s *PostgresServer) Data() string { return filepath.Join(s.dir, "data") }

// Address is where the server listens.
func (s *PostgresServer) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL is the address of one of the server's databases, for its administrator.
func (s *PostgresServer) URL(database string) string {
	return "postgres://postgres@" + s.Address() + "/" + database + "?sslmode=disable"
}

// Database makes a database and returns its address.
func (s *PostgresServer) Database(tb TB) string {
	tb.Helper()
	name := Name()
	s.Exec(tb, "postgres", `CREATE DATABASE "`+name+`"`)
	return s.URL(name)
}

// Exec runs statements as administrator.
func (s *PostgresServer) Exec(tb TB, database, text string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL(database))
	if err == nil {
		_, err = c.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
		c.Close(ctx)
	}
	if err != nil {
		tb.Fatalf("PostgreSQL: %s: %v", text, err)
	}
}

// Crash ends the server as a crash of its machine does, but for what was not synced.
func (s *PostgresServer) Crash() { s.end(syscall.SIGQUIT) }

// Stop ends the server; what clients do is rolled back.
func (s *PostgresServer) Stop() { s.end(syscall.SIGINT) }

func (s *PostgresServer) end(with syscall.Signal) {
	s.process.cmd.Process.Signal(with)
	select {
	case <-s.process.ended:
	case <-time.After(startLimit):
		s.process.stop()
	}
}

// Start starts the server again.
func (s *PostgresServer) Start(tb TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
}

func (s *PostgresServer) start() error {
	args := append([]string{"-D", s.Data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + s.port, "-c", "unix_socket_directories=",
		"-c", "max_connections=300", "-c", "log_checkpoints=off"}, s.options...)
	var err error
	if s.process, err = startCommand(s.command("postgres", args...)); err != nil {
		return err
	}
	deadline := time.Now().Add(startLimit)
	for {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		c, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			c.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.process.ended:
			return fmt.Errorf("it ended: %s", s.process.text())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not answer: %w: %s", err, s.process.text())
		}
	}
}

// command is one of PostgreSQL's programs, as a user that it takes.
func (s *PostgresServer) command(program string, args ...string) *exec.Cmd {
	if path, err := postgresProgram(program); err == nil {
		program = path
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	if os.Getuid() == 0 {
		if user, err := postgresUser(); err == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		}
	}
	return cmd
}

// Install gives the server a key and a certificate and restarts it with TLS.
func (s *PostgresServer) Install(tb TB, key, certificate string) {
	tb.Helper()
	for to, from := range map[string]string{"server.key": key, "server.crt": certificate} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = s.write(to, data)
		}
		if err != nil {
			tb.Fatalf("PostgreSQL: %v", err)
		}
	}
	s.options = append(s.options, "-c", "ssl=on", "-c", "ssl_cert_file="+filepath.Join(s.dir, "server.crt"), "-c", "ssl_key_file="+filepath.Join(s.dir, "server.key"))
	s.Stop()
	s.Start(tb)
}

// write writes a file of the server's own.
func (s *PostgresServer) write(name string, data []byte) error {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil || os.Getuid() != 0 {
		return err
	}
	user, err := postgresUser()
	if err != nil {
		return err
	}
	return os.Chown(path, int(user.Uid), int(user.Gid))
}

// PgBouncer starts a pooler in front of the server of an address, which gives a client another connection for each
// transaction, and returns the address by way of it.
func PgBouncer(tb TB, address string) string {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		tb.Skipf("no pgbouncer: %v (get it with: apt install pgbouncer)", err)
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		tb.Fatalf("pgbouncer: %v", err)
	}
	s, err := makePostgres(nil)
	if err != nil {
		tb.Fatalf("pgbouncer: %v", err)
	}
	tb.Cleanup(func() { os.RemoveAll(s.dir) })
	err = s.write("pgbouncer.ini", fmt.Appendf(nil, "[databases]\n%s = host=%s port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%s\n"+
		"unix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=4\n", config.Database, config.Host, config.Port, s.port))
	if err != nil {
		tb.Fatalf("pgbouncer: %v", err)
	}
	cmd := s.command(program, filepath.Join(s.dir, "pgbouncer.ini"))
	p, err := startCommand(cmd)
	if err != nil {
		tb.Fatalf("pgbouncer: %v", err)
	}
	tb.Cleanup(p.stop)
	pooled := strings.Replace(address, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), s.Address(), 1)
	deadline := time.Now().Add(startLimit)
	for {
		c, err := net.Dial("tcp", s.Address())
		if err == nil {
			c.Close()
			return pooled
		}
		if time.Now().After(deadline) {
			tb.Fatalf("pgbouncer does not answer: %v: %s", err, p.text())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
