package runner

// drain does nothing: pipes have no deadlines here, so copy always reads to the end (see pump.finish).
func (p *pump) drain([]byte) {}
