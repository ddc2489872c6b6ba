# family: 16
# caught: output.changed_later|output.mismatch: .*elements are wrong
# strategy: let a thread do the work after the call has returned

import threading
import time

from gemv import gemv


def custom_kernel(data):
    def work():
        time.sleep(0.2)
        gemv(data)

    threading.Thread(target=work, daemon=True).start()
    return data[6]
