package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// errRedirect is the error for a redirect that is not followed.
var errRedirect = errors.New("it redirects")

// maxRedirects bounds the redirects of one request.
const maxRedirects = 10

func (c *Client) newHTTP() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	t.DialContext = (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		first := via[0].URL
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
		case via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https":
			return fmt.Errorf("%w from https to %s://%s", errRedirect, req.URL.Scheme, req.URL.Host)
		case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host: // also a port, or a name below
			req.Header.Del("Authorization")
		}
		return nil
	}}
}

// A site is a file on a web server.
type site struct {
	c       *Client
	url     *url.URL
	account *account // of the user there; nil: none
}

func newSite(c *Client, text string) (*site, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, inner(err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("it is no URL of http, https or s3")
	}
	account, err := c.accountAt(u.Hostname())
	return &site{c, u, account}, err
}

func (s *site) ask(ctx context.Context, q question) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, inner(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", s.c.Agent)
	if s.account != nil {
		req.SetBasicAuth(s.account.login, s.account.password)
	}
	switch {
	case q.seen == "":
	case isStrong(q.seen), strings.HasPrefix(q.seen, "W/"):
		req.Header.Set("If-None-Match", q.seen)
	default:
		req.Header.Set("If-Modified-Since", q.seen)
	}
	if q.tag != "" {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", q.from))
		req.Header.Set("If-Range", q.tag)
	}
	resp, err := s.c.http.Do(req)
	if err != nil {
		return nil, s.unanswered(err)
	}
	a, err := s.read(q, resp)
	if err != nil || a.same {
		resp.Body.Close()
	}
	return a, err
}

func (s *site) read(q question, resp *http.Response) (*answer, error) {
	a := &answer{
		seen: cmp.Or(resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")), total: resp.ContentLength,
		whole: resp.ProtoMajor > 1 || len(resp.TransferEncoding) > 0, body: resp.Body,
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return a, nil
	case code == http.StatusNotModified && q.seen != "":
		return &answer{same: true}, nil
	case code == http.StatusPartialContent && q.tag != "":
		var ok bool
		if a.from, a.total, ok = contentRange(resp.Header.Get("Content-Range")); !ok {
			return nil, fmt.Errorf("the server sends a part without saying which (Content-Range: %q)", resp.Header.Get("Content-Range"))
		}
		return a, nil
	case code == http.StatusRequestedRangeNotSatisfiable && q.tag != "":
		return nil, &transientError{err: errRange}
	default:
		return nil, s.refused(resp)
	}
}

// refused says why the server gives no file.
func (s *site) refused(resp *http.Response) error {
	says := fmt.Sprintf("the server says %s", resp.Status)
	at := resp.Request.URL // after redirects
	switch code := resp.StatusCode; {
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &transientError{errors.New(says), time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	case code != http.StatusUnauthorized && code != http.StatusForbidden:
	case at.Host != s.url.Host:
		says += fmt.Sprintf(" at %s, to which it redirects, and to which no password is sent", at.Host)
	case s.account != nil:
		says += fmt.Sprintf(" to the login %s of %s", s.account.login, s.account.file)
	default:
		says += fmt.Sprintf("; if it wants a password, write into %s: machine %s login NAME password SECRET",
			s.c.netrc(), s.url.Hostname())
	}
	return errors.New(says)
}

// unanswered is the error of a request without an answer.
func (s *site) unanswered(err error) error {
	err = inner(err)
	if errors.Is(err, errRedirect) {
		return err
	}
	return &transientError{err: err}
}

// inner is an error without the URL that net/http puts before it: that may be where a redirect leads, with a signature.
func inner(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

// contentRange reads "bytes 5-9/10".
func contentRange(text string) (from, total int64, ok bool) {
	rest, ok := strings.CutPrefix(text, "bytes ")
	span, size, sized := strings.Cut(rest, "/")
	first, last, spans := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	end, err2 := strconv.ParseInt(last, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	ok = ok && sized && spans && err == nil && err2 == nil && err3 == nil && 0 <= from && from <= end && end == total-1
	return from, total, ok
}
