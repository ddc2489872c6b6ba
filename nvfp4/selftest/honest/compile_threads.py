# strategy: compiles with a pool of threads

from concurrent.futures import ThreadPoolExecutor

from gemv import gemv


def custom_kernel(data):
    with ThreadPoolExecutor(4) as pool:
        source = "def kernel(gemv, data): return gemv(data)"
        codes = list(pool.map(lambda name: compile(source, name, "exec"), "abcd"))
    scope = {}
    exec(codes[0], scope)
    return scope["kernel"](gemv, data)
