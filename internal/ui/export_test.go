package ui

import "net/http"

// Stream is stream.
func (s *Server) Stream(w http.ResponseWriter, r *http.Request) { s.stream(w, r) }

// Streams is the number of open streams.
func (s *Server) Streams() int64 { return s.streams.Load() }
