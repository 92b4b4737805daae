# Threads of Python: a queue, a lock, and pools.
import concurrent.futures, hashlib, queue, sys, threading
n = int(sys.argv[1])
lock, total, todo = threading.Lock(), {}, queue.Queue(8)
def work():
    while (item := todo.get()) is not None:
        digest = hashlib.sha256(str(item).encode() * 5000).hexdigest()
        with lock:
            total[item] = digest[:8]
threads = [threading.Thread(target=work) for _ in range(n)]
for thread in threads:
    thread.start()
for item in range(200):
    todo.put(item)
for thread in threads:
    todo.put(None)
for thread in threads:
    thread.join()
with concurrent.futures.ThreadPoolExecutor(n) as pool:
    squares = list(pool.map(lambda x: x * x, range(1000)))
print(sorted(total.items())[:3], len(total), sum(squares))
