"""The command line of AWS without its start, which takes half a second of processor time: awscommand.py <socket>. A connection has the words of a
command, with its standard streams; the answer is the exit code."""
import os, signal, socket, sys

import awscli.clidriver

driver = awscli.clidriver.create_clidriver()
driver.session.create_client("batch")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(64)
while True:
    connection, _ = server.accept()
    if os.fork():
        connection.close()
        continue
    words, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    try:
        code = driver.main(words.decode().split("\0"))
    except SystemExit as e:
        code = e.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(str(code).encode())
    os._exit(0)
