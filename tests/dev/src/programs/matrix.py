# A product of matrices of whole numbers, which the threads of BLAS divide among them.
import numpy
a = numpy.arange(160000, dtype=float).reshape(400, 400) % 17
b = numpy.arange(160000, dtype=float).reshape(400, 400) % 13
print(int((a @ b).sum()), int((a @ b).trace()))
