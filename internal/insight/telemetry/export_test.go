package telemetry

import "net/http"

// SendBy has requests answered by the test instead of the network.
func (s *Spans) SendBy(t http.RoundTripper) { s.otlp.client.Transport = t }
