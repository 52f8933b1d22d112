package ui

import "net/http"

// Stream is stream.
func (s *Server) Stream(w http.ResponseWriter, r *http.Request) { s.stream(w, r) }
