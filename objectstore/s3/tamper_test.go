package s3_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// tamper starts a server that calls answer for each request. If answer returns false, it forwards the request, with the
// unread rest of its body, to the server at target.
func tamper(t *testing.T, target string, answer func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	return tamperBoth(t, target, answer, nil)
}

// tamperBoth can change the target's answers too.
func tamperBoth(t *testing.T, target string, answer func(w http.ResponseWriter, r *http.Request) bool, change func(*http.Response) error) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: change,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.WriteString(w, "<Error><Code>"+code+"</Code><Message>said the test</Message><RequestId>17</RequestId></Error>")
	}
	return true
}
