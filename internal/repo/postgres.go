package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"e3/internal/human"
	"e3/refstore"
	"e3/refstore/postgres"
	"e3/refstore/refstoretest"
)

// postgresDatabase is a database of PostgreSQL.
type postgresDatabase struct {
	user, hosts, name string // any may be empty: then PGUSER, PGHOST, PGDATABASE, or a service, name it
	query             map[string]string
}

// postgresParams are libpq's, as far as a location may have them.
var postgresParams = []string{"sslmode", "sslrootcert", "sslcert", "sslkey", "service", "target_session_attrs", "connect_timeout"}

// hostBytes are those of a list of hosts with ports.
const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:,[]"

// parsePostgres reads postgres://[<user>@]<host>[:<port>][,<host>…]/<database>/<repository>.
func parsePostgres(location string, u *url.URL, query map[string]string) (_ database, repository string, objects bucketLocation, err error) {
	name, repository, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	d := &postgresDatabase{user: u.User.Username(), hosts: u.Host, name: name, query: map[string]string{}}
	for _, param := range postgresParams {
		d.query[param] = query[param]
	}
	_, password := u.User.Password()
	switch {
	case password:
		err = badLocation(strings.Replace(location, u.User.String()+"@", d.user+":…@", 1), "it has a password, which others would see in process lists and records; "+
			"put it into ~/.pgpass, PGPASSWORD or a service file, or use a certificate (sslcert, sslkey)")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return !strings.ContainsRune(hostBytes, r) }):
		err = badLocation(location, "%q is no list of hosts", u.Host)
	case !postgres.ValidRepository(name) || !postgres.ValidRepository(repository):
		err = badLocation(location, "after the host come the names of the database and of the repository: postgres://%s/<database>/<repository>", u.Host)
	}
	return d, repository, bucketLocation{Prefix: name + "/" + repository}, err
}

func (d *postgresDatabase) String() string { return postgresScheme + "://" + d.hosts + "/" + d.name }

// owner leaves the hosts out: a server has several names, and another takes over.
func (d *postgresDatabase) owner() string { return postgresScheme + ":///" + d.name }

func (d *postgresDatabase) address() string { return d.user + "\x00" + d.query["service"] }

func (d *postgresDatabase) params() (params [][3]string) {
	for _, param := range postgresParams {
		params = append(params, [3]string{param, d.query[param], ""})
	}
	return params
}

func (d *postgresDatabase) connect(_ context.Context, r *Repo) (connection, error) {
	return &postgresConnection{postgresDatabase: d, r: r}, nil
}

// dsn is the address of the database for its client.
func (d *postgresDatabase) dsn() string {
	settings := maps.Clone(d.query)
	settings["user"], settings["dbname"] = d.user, d.name
	var hosts, ports []string
	for _, host := range strings.Split(d.hosts, ",") {
		port := "5432"
		if h, p, err := net.SplitHostPort(host); err == nil {
			host, port = h, p
		}
		hosts, ports = append(hosts, strings.Trim(host, "[]")), append(ports, port)
	}
	if settings["host"] = strings.Join(hosts, ","); strings.Contains(d.hosts, ":") {
		settings["port"] = strings.Join(ports, ",")
	}
	if len(hosts) > 1 && settings["target_session_attrs"] == "" {
		settings["target_session_attrs"] = "primary"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if value := settings[name]; value != "" {
			words = append(words, name+"='"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)+"'")
		}
	}
	return strings.Join(words, " ")
}

// postgresConnection has one store for a repository, whose connections serve its description and its use.
type postgresConnection struct {
	*postgresDatabase
	r     *Repo
	store *postgres.Store
	fence func(ctx context.Context) (string, error) // nil: until it is used
}

func (c *postgresConnection) options(repository string) postgres.Options {
	return postgres.Options{
		Address: c.dsn(), Repository: repository, Patience: c.r.opts.Outlast, Trying: trying("PostgreSQL", c.hosts, c.r.warn), Warn: c.r.warn, Observe: c.r.traffic.statement,
		Permit: func(ctx context.Context, partition string) (string, error) {
			if c.fence == nil || unfenced(partition) {
				return "", nil
			}
			return c.fence(ctx)
		},
	}
}

func (c *postgresConnection) where() string { return "(" + human.Line(c.dsn()) + ")" }

func (c *postgresConnection) server() string { return c.postgresDatabase.String() }

func (c *postgresConnection) traits() traits { return traits{lookups: 1024, told: true, fenced: true} }

func (c *postgresConnection) identity(ctx context.Context) (string, error) {
	return c.store.Identity(ctx)
}

func (c *postgresConnection) create(ctx context.Context, made *Created, objects *bucketLocation) error {
	created, err := postgres.Init(ctx, c.options("any"))
	if created {
		made.Schema = "e3 in the database " + c.name
	}
	if made.Advice = []string{"back up the database, and turn on versioning of the bucket (doc/postgres.md)"}; objects.Folder != "" {
		made.Advice = []string{"back up the database, and after it the folder of the objects (doc/postgres.md)"}
	}
	return err
}

func (c *postgresConnection) explain(_ context.Context, _ string, failure error) (missing string, other error) {
	switch {
	case errors.Is(failure, postgres.ErrNoDatabase):
		return "", errors.New("its database does not exist; make it with: createdb " + c.name)
	case errors.Is(failure, postgres.ErrNoSchema):
		return "the schema e3", nil
	}
	return "", nil
}

func (c *postgresConnection) describe(repository string) (refstore.Store, error) {
	if c.store != nil {
		return c.store, nil
	}
	var err error
	c.store, err = postgres.Open(c.options(repository))
	return c.store, err
}

func (c *postgresConnection) use(_ string, _ *format, w writer) (sharedStore, error) {
	c.fence = w.fence
	return c.store, nil
}

// aside makes the schema if it is missing, and leaves it.
func (c *postgresConnection) aside(ctx context.Context, name string, _ remote) (refstoretest.Opener, func(context.Context) error, error) {
	if _, err := postgres.Init(ctx, c.options(name)); err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var opened []*postgres.Store
	open := func(context.Context) (refstore.Store, error) {
		mu.Lock()
		defer mu.Unlock()
		s, err := postgres.Open(c.options(fmt.Sprint(name, "-", len(opened))))
		if err == nil {
			opened = append(opened, s)
		}
		return s, err
	}
	gone := func(ctx context.Context) (err error) {
		for _, s := range opened {
			err = errors.Join(err, s.Drop(ctx), s.Close())
		}
		return err
	}
	return open, gone, nil
}

func (c *postgresConnection) close() error {
	if c.store == nil {
		return nil
	}
	return c.store.Close()
}
