package telemetry

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// settings are the values of OTEL_* variables. The SDK itself reads the variables of sampling, limits, batches and
// the resource.
type settings struct {
	console, otlp bool
	endpoint      endpoint
}

// endpoint is the address to which spans are sent, with the options of the requests.
type endpoint struct {
	url     *url.URL
	headers http.Header
	timeout time.Duration // of one batch, with all its retries
	gzip    bool
	// Files with certificates in PEM, "" for the system's certificates and for no client certificate.
	roots, certificate, key string
}

const defaultTimeout = 10 * time.Second

// parse reads the environment. Spans are off if neither an exporter nor an endpoint is named.
func parse(getenv func(string) string) (settings, error) {
	var s settings
	if strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true") {
		return s, nil
	}
	names := strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))
	if names == "" {
		if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return s, nil
		}
		names = "otlp"
	}
	for name := range strings.SplitSeq(names, ",") {
		switch strings.TrimSpace(name) {
		case "otlp":
			s.otlp = true
		case "console":
			s.console = true
		case "none", "":
		default:
			return s, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: e3 knows otlp, console and none", name)
		}
	}
	if !s.otlp {
		return s, nil
	}
	return s, s.endpoint.parse(getenv)
}

// parse reads the variables of the exporter; variables for traces override those for all signals.
func (e *endpoint) parse(getenv func(string) string) error {
	option := func(name string) (value, from string) {
		from = "OTEL_EXPORTER_OTLP_TRACES_" + name
		if value = strings.TrimSpace(getenv(from)); value == "" {
			from = "OTEL_EXPORTER_OTLP_" + name
			value = strings.TrimSpace(getenv(from))
		}
		return value, from
	}
	if protocol, from := option("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return fmt.Errorf("%s=%s: e3 speaks only http/protobuf; set %s=http/protobuf and an endpoint that takes it (port 4318 of most collectors)", from, protocol, from)
	}
	if err := e.parseURL(getenv); err != nil {
		return err
	}
	text, from := option("HEADERS")
	var err error
	if e.headers, err = parseHeaders(text); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	e.timeout = defaultTimeout
	if text, from = option("TIMEOUT"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 32)
		if err != nil || ms < 1 {
			return fmt.Errorf("%s=%s is no number of milliseconds", from, text)
		}
		e.timeout = time.Duration(ms) * time.Millisecond
	}
	switch text, from = option("COMPRESSION"); text {
	case "gzip":
		e.gzip = true
	case "", "none":
	default:
		return fmt.Errorf("%s=%s: e3 knows gzip and none", from, text)
	}
	e.roots, _ = option("CERTIFICATE")
	e.certificate, _ = option("CLIENT_CERTIFICATE")
	e.key, _ = option("CLIENT_KEY")
	if (e.certificate == "") != (e.key == "") {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY need each other")
	}
	return nil
}

// parseURL reads the endpoint: an endpoint for traces is used unchanged, and v1/traces is appended to an endpoint for
// all signals.
func (e *endpoint) parseURL(getenv func(string) string) error {
	from := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	text, signal := strings.TrimSpace(getenv(from)), ""
	if text == "" {
		from, signal = "OTEL_EXPORTER_OTLP_ENDPOINT", "v1/traces"
		text = cmp.Or(strings.TrimSpace(getenv(from)), "http://localhost:4318")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// Without the text, which may hold a password.
		return fmt.Errorf("%s is no address like http://localhost:4318", from)
	}
	if signal != "" {
		u = u.JoinPath(signal)
	} else if u.Path == "" {
		u.Path = "/"
	}
	e.url = u
	return nil
}

// parseHeaders reads name=value,name=value; values are percent-encoded.
func parseHeaders(text string) (http.Header, error) {
	h := http.Header{}
	for i, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || err != nil || !validHeader(name, value) {
			return nil, fmt.Errorf("header %d is not like name=value", i+1) // without the text, likely a secret
		}
		h.Set(name, value)
	}
	return h, nil
}

func validHeader(name, value string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
